from datetime import UTC, datetime, timedelta

from turn_fixtures import Ledger, pay_tool

from signoff.activities.run_rules import is_of
from signoff.approvals.machine import count_vote, vote_of
from signoff.contracts.activity_messages import Authority
from signoff.contracts.ids import parse_approval_id
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.testing import a_call_context, a_decision, a_request, a_tool_context
from signoff.testing.builders import a_person, a_run_task

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_request_id_names_its_call() -> None:
    request = a_request(tenant="acme", call="c2.1")
    named = parse_approval_id(request.id)
    assert named is not None
    assert (named.turn.tenant, named.turn.session, named.turn.turn, named.call) == ("acme", "s", "t", "c2.1")
    assert a_request(id="other").id == "other"


def test_opened_request_has_the_deadline_of_its_terms() -> None:
    request = a_request(opened=NOW, timeout=60.0, remind_after=30.0)
    assert (request.expires_at, request.remind_at) == (NOW + timedelta(seconds=60), (NOW + timedelta(seconds=30),))
    assert a_request().expires_at is None


def test_decision_is_about_the_given_request() -> None:
    request = a_request(opened=NOW, revision=3, question_hash="h" * 64)
    decision = a_decision(request, subject="ana")
    assert (decision.approval_id, decision.revision, decision.question_hash) == (request.id, 3, "h" * 64)
    vote = vote_of(decision, Authority(allowed=True, subject="ana", assurance="session"), NOW)
    assert count_vote(request, vote).state == "approved"


def test_contexts_belong_to_one_call() -> None:
    ctx, tool = a_call_context(channel="slack"), a_tool_context(attempt=2)
    assert (ctx.actor, ctx.session, ctx.turn, ctx.tenant, ctx.user, ctx.channel) == (
        tool.actor_name, tool.session_id, tool.turn_id, tool.tenant_id, tool.user, "slack",
    )  # fmt: skip
    assert tool.attempt == 2


def test_person_is_an_approver_by_default() -> None:
    assert a_person("bo", name="Bo") == Person(id="bo", name="Bo", roles=("approvers",))
    assert a_person(roles=()) == Person(id="ana")


def test_run_task_is_bound_to_the_given_call() -> None:
    tool = pay_tool(Ledger())
    task, ctx = a_run_task(tool, {"amount": 1}, call="c2.1"), a_call_context(turn="u")
    assert is_of(task, tool, {"amount": 1})
    assert not is_of(task, tool, {"amount": 2})
    assert not is_of(replace(task, call="c1.1"), tool, {"amount": 1})
    assert is_of(a_run_task(tool, {"amount": 1}, ctx=ctx), tool, {"amount": 1})
    assert a_run_task(tool, digest="d" * 64).digest == "d" * 64
