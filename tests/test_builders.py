"""The builders of `signoff.testing`: whole with no field given, and with each field that is."""

from datetime import UTC, datetime, timedelta

from signoff.approvals.machine import count_vote, vote_of
from signoff.contracts.activity_messages import Authority
from signoff.contracts.ids import parse_approval_id
from signoff.testing import a_call_context, a_decision, a_request, a_tool_context

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_id_of_a_request_names_its_call() -> None:
    """Whichever part of it is given, unless the id itself is."""
    request = a_request(tenant="acme", call="c2.1")
    named = parse_approval_id(request.id)
    assert named is not None
    assert (named.turn.tenant, named.turn.session, named.turn.turn, named.call) == ("acme", "s", "t", "c2.1")
    assert a_request(id="other").id == "other"


def test_an_opened_request_has_the_deadline_of_its_terms() -> None:
    """It waits since then; one that was not opened waits for nothing."""
    request = a_request(opened=NOW, timeout=60.0, remind_after=30.0)
    assert (request.expires_at, request.remind_at) == (NOW + timedelta(seconds=60), (NOW + timedelta(seconds=30),))
    assert a_request().expires_at is None


def test_a_decision_is_about_the_request_it_is_given() -> None:
    """By id, revision and hash, so that it counts."""
    request = a_request(opened=NOW, revision=3, question_hash="h" * 64)
    decision = a_decision(request, subject="ana")
    assert (decision.approval_id, decision.revision, decision.question_hash) == (request.id, 3, "h" * 64)
    vote = vote_of(decision, Authority(allowed=True, subject="ana", assurance="session"), NOW)
    assert count_vote(request, vote).state == "approved"


def test_contexts_are_those_of_one_call() -> None:
    """What policies see and what a tool is told name the same turn, user and actor."""
    ctx, tool = a_call_context(channel="slack"), a_tool_context(attempt=2)
    assert (ctx.actor, ctx.session, ctx.turn, ctx.tenant, ctx.user, ctx.channel) == (
        tool.actor_name, tool.session_id, tool.turn_id, tool.tenant_id, tool.user, "slack",
    )  # fmt: skip
    assert tool.attempt == 2
