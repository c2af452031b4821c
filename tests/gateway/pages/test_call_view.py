from types import SimpleNamespace
from typing import Any

from gateway_rig import PEOPLE, rig_catalog
from tables import table
from turn_fixtures import Ledger

from signoff.contracts.approval import ApprovalRequest, ApprovalState, Card
from signoff.contracts.call import REQUIRES_APPROVAL, CallCode, CallOutcome, DenialSource, RuleReference, ToolDenied
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.message import CallPart, Message
from signoff.contracts.person import Principal
from signoff.contracts.turn import CallView, TurnView
from signoff.gateway.approvals.secret_masks import masked_args, masked_view
from signoff.gateway.pages.call_view import CallLine, call_line
from signoff.gateway.pages.turn_view import call_lines, transcript_entries
from signoff.people.directory import FixedDirectory
from signoff.store.store import Store
from signoff.testing import a_request

CATALOG = rig_catalog(Ledger())


def line(view: CallView, part: CallPart | None = None) -> CallLine:
    return call_line(view, part, CATALOG, FixedDirectory(PEOPLE), "en")


def outcome(code: CallCode, text: Any = "", **more: Any) -> CallView:
    settled = CallOutcome(call="c1.1", tool="pay", code=code, value=Content(inline=text), **more)
    return CallView(call="c1.1", tool="pay", state=code, outcome=settled)


def asked(state: ApprovalState, **more: Any) -> ApprovalRequest:
    given = {"state": state, "card": Card(effect="Pay Ana"), "approvers": ("role:finance", "user:ana")}
    return a_request(**given | more)


def waits(request: ApprovalRequest) -> CallView:
    return CallView(call="c1.1", tool="pay", state="waiting", approval=request)


def test_call_in_doubt_shows_outcome_unknown() -> None:
    found = line(outcome("in_doubt"))
    assert (found.words, found.tone, found.doubt) == ("Outcome unknown", "doubt", True)
    assert "Check in the other system" in found.detail


@table(
    ("source", "expected", "detail"),
    ("human", "Denied by ana", "“no”"),
    ("policy", "Denied by rule", "no"),
    ("timeout", "Timed out without an answer", ""),
    ("cancelled", "Cancelled", "no"),
    ("repeat", "Denied again, as before", "no"),
)
def test_every_denial_names_its_source(source: DenialSource, expected: str, detail: str) -> None:
    denied = ToolDenied(source=source, tool="pay", call_id="c1.1", decided_by="ana", reason="no")
    found = line(outcome("denied", denied=denied))
    assert (found.words, found.detail, found.tone) == (expected, detail, "bad")


@table(
    ("view", "expected", "tone"),
    (CallView(call="c1.1", tool="pay", state="proposed"), "Checking", "live"),
    (CallView(call="c1.1", tool="pay", state="running"), "Running", "live"),
    (CallView(call="c1.1", tool="pay", state="something new"), "Checking", "live"),
    (waits(asked("pending")), "Waiting for finance, Ana", "wait"),
    (waits(asked("denied", decided_name="Bo")), "Denied by Bo", "bad"),
    (waits(asked("timed_out")), "Timed out without an answer", "bad"),
    (waits(asked("approved", decided_name="Bo")), "Approved by Bo, running now", "live"),
    (outcome("ok", rule=REQUIRES_APPROVAL), "Ran; this tool needs no approval", "good"),
    (outcome("ok", rule=RuleReference(name="auto_approve_if")), "Ran, approved by rule", "good"),
    (outcome("ok", gate="dry_run"), "Dry run: the call would run", "quiet"),
    (outcome("too_many_calls", "enough"), "Rejected: too many calls", "bad"),
    (outcome("not_available", "no"), "Rejected: no such tool", "bad"),
    (outcome("skipped"), "Not run", "quiet"),
    (outcome("waiting", "waiting for approval, K7Q-2FM"), "Request already waiting", "wait"),
)
def test_every_call_state_has_text_and_tone(view: CallView, expected: str, tone: str) -> None:
    found = line(view)
    assert (found.words, found.tone) == (expected, tone)


@table(
    ("state", "credited", "expected"),
    ("approved", "", "Ran, approved by Bo"),
    ("denied", "", "Ran"),
    ("pending", "", "Ran"),
    ("denied", "ana", "Ran, approved by Ana"),
)
def test_only_the_approver_of_a_run_is_credited(state: ApprovalState, credited: str, expected: str) -> None:
    settled = outcome("ok", decided_by=credited).outcome
    request = asked(state, decided_by="bo", decided_name="Bo")
    assert line(CallView(call="c1.1", tool="pay", state="ok", approval=request, outcome=settled)).words == expected


def test_sentence_of_a_call_hides_secrets() -> None:
    args = Content(inline={"site": "https://example.com", "password": "correct horse"})
    login = CallView(call="c1.1", tool="login", state="proposed")
    assert line(login, CallPart(call="c1.1", tool="login", args=args)).what == "Log in to https://example.com"
    odd = CallView(call="c1.1", tool="nothing", state="proposed")
    assert line(odd, CallPart(call="c1.1", tool="nothing", args=args)).what == "nothing"


def test_nested_secrets_are_masked() -> None:
    args = {"a": "xyz", "b": {"c": 5, "d": [{"c": "s"}]}, "e": None}
    assert masked_args(args, ["a", "b.c", "e"]) == {
        "a": "hidden, 3 characters",
        "b": {"c": "hidden", "d": [{"c": "s"}]},
        "e": "hidden",
    }
    assert masked_args(args, ["b.d.c"])["b"]["d"] == [{"c": "hidden, 1 character"}]
    assert masked_args(args, []) == args


def test_unknown_tools_and_stored_secrets_show_no_arguments() -> None:
    stored = Content(blob=BlobRef(sha256="f" * 64, size=9_000, preview='{"password": "correct'))
    parts = (
        CallPart(call="c1.1", tool="nothing", args=Content(inline={"key": "k"})),
        CallPart(call="c1.2", tool="login", args=stored),
        CallPart(call="c1.3", tool="pay", args=Content(inline={"amount": 1})),
    )
    calls = tuple(
        CallView(call=part.call, tool=part.tool, state="proposed", args_preview="correct horse") for part in parts[:2]
    )
    view = TurnView(
        tenant="main", session="s", turn="t", actor="desk", state="running",
        requester=Principal(user="guest", words="a hash", nonce="a nonce", key_id="k"),
        messages=({"role": "assistant", "parts": [part.model_dump() for part in parts]},), calls=calls,
    )  # type: ignore[arg-type]  # fmt: skip
    shown = masked_view(view, CATALOG)
    written = shown.model_dump_json()
    assert "correct" not in written
    assert '"key"' not in written
    assert shown.requester == Principal(user="guest", key_id="k")
    assert '"amount":1' in written


def test_failed_tool_names_its_fallback() -> None:
    found = line(outcome("ok", "paid", fallback="wire", primary_error="the bank is closed", decided_by="ana"))
    assert found.detail == "the bank is closed; fallback: wire"
    assert (found.state, found.words, found.result) == ("execution_failed", "Failed", "")
    assert line(outcome("ok", "paid")).detail == ""
    meanwhile = CallView(call="c1.1", tool="pay", state="running")
    tried = call_line(meanwhile, None, CATALOG, FixedDirectory(PEOPLE), "en", stood="wire")
    assert (tried.state, tried.words, tried.detail) == ("execution_failed", "Failed", "Fallback: wire")


async def test_fallback_call_follows_its_primary_in_the_conversation(store: Store) -> None:
    part = CallPart(call="c1.1", tool="login", args=Content(inline={"site": "bank", "password": "hunter2"}))
    pending = asked("pending")
    view = TurnView(
        tenant="main",
        session="s",
        turn="t",
        actor="desk",
        state="suspended",
        requester=Principal(user="guest"),
        messages=(Message(role="assistant", parts=(part,)),),
        calls=(
            CallView(call="c1.1", tool="login", state="running"),
            CallView(call="c1.2", tool="pay", state="waiting"),
            CallView(call="c1.1001", tool="pay", state="waiting", approval=pending, stands_for="c1.1"),
            CallView(call="c1.2001", tool="login", state="running", stands_for="c1.1"),
        ),
    )
    deps: Any = SimpleNamespace(catalog=CATALOG, people=FixedDirectory(PEOPLE), store=store)
    entries = await transcript_entries(deps, view, "en")
    assert [each.line.call for each in entries if each.line is not None] == ["c1.1", "c1.1001", "c1.2001"]
    assert len({each.key for each in entries}) == 3
    assert entries[1].line is not None
    assert (entries[1].line.approval, entries[1].line.state) == (pending.id, "waiting")
    lines = call_lines(deps, view, "en")
    assert lines["c1.2001"].what == lines["c1.1"].what
    assert "bank" in lines["c1.2001"].what
