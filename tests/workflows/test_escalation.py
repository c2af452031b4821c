from datetime import UTC, datetime, timedelta

import pytest
from some import some
from temporalio import activity
from turn_fixtures import ApprovalPolicy, Ledger, RunningTurns, TurnRig, catalog_of, pay_tool, yes

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.turn import TurnView
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.directory import FixedDirectory, development_directory
from signoff.testing.builders import a_person
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

DAY = 86_400.0
SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]
PEOPLE = development_directory([Person(id="cfo", roles=("cfo",)), a_person("ana")])
WEEKS = ApprovalPolicy(
    timeout=28 * DAY, remind_after=7 * DAY, escalate_after=14 * DAY, escalate_to=("role:cfo",), on_timeout="escalate"
)


async def request_of(turns: RunningTurns, key: TurnKey) -> ApprovalRequest:
    return some((await turns.signoff.view(key)).calls[0].approval)


@pytest.mark.row("V09")
async def test_silent_request_is_reminded_escalated_extended_and_expired(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = catalog_of([pay_tool(ledger, WEEKS)])
    async with turn_rig.running(catalog, SCRIPT, people=PEOPLE) as turns:
        key = await turns.start()
        opened = some((await turns.waiting(key)).calls[0].approval)
        assert opened.opened_at is not None
        refused = await turns.signoff.decide(yes(key, subject="cfo"))

        await turns.forward(key, days=8)
        reminded = await turns.until(
            key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.reminded == 1
        )

        await turns.forward(key, days=7)
        await turns.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.escalated)
        escalated = await request_of(turns, key)
        assert (escalated.approvers, escalated.expires_at) == (("role:approvers", "role:cfo"), opened.expires_at)

        await turns.forward(key, days=14)
        await turns.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.extended)
        put_off = await request_of(turns, key)
        await turns.forward(key, days=28)
        result = await turns.signoff.result(key)
        late = await turns.signoff.decide(yes(key, subject="cfo"))
    assert reminded.state == "suspended"
    assert refused.code == "not_allowed"
    assert (put_off.state, put_off.expires_at) == ("pending", opened.opened_at + timedelta(days=56))
    denied = some(result.calls[0].denied)
    assert (denied.source, late.code) == ("timeout", "expired")
    assert ledger.rows == []


async def test_escalation_approver_may_decide(turn_rig: TurnRig, ledger: Ledger) -> None:
    policy = ApprovalPolicy(escalate_after=1.0, escalate_to=("role:cfo",))
    async with turn_rig.running([pay_tool(ledger, policy)], SCRIPT, people=PEOPLE) as turns:
        key = await turns.start()
        await turns.until(key, _escalated)
        receipt = await turns.signoff.decide(yes(key, subject="cfo"))
        await turns.signoff.result(key)
    assert (receipt.status, receipt.decided_by) == ("accepted", "cfo")
    assert len(ledger.rows) == 1


def _escalated(view: TurnView) -> bool:
    approval = view.calls[0].approval if view.calls else None
    return approval is not None and approval.escalated


def _revision(view: TurnView) -> int:
    approval = view.calls[0].approval
    return 0 if approval is None else approval.revision


class _AwayAtFirst(FixedDirectory):
    """Answers the gates at their second attempt, when the turn asks them."""

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        kind = activity.info().activity_type if activity.in_activity() else ""
        if kind == names.MODEL or (kind == names.GATE and activity.info().attempt == 1):
            raise StoreUnavailable("away for a moment")
        return super().find(person_id, tenant)


async def test_first_answer_after_escalation_counts_despite_clock_difference(turn_rig: TurnRig) -> None:
    ledger, signer = Ledger(), Signer(PrivateKeys(keys=(new_key(datetime.now(UTC)),)))
    policy = ApprovalPolicy(escalate_after=1.0, escalate_to=("role:cfo",))
    people = _AwayAtFirst(PEOPLE.all())
    catalog = catalog_of([pay_tool(ledger, policy)])
    async with turn_rig.running(catalog, SCRIPT, people=people, verifier=signer.verifier()) as turns:
        key = await turns.start()
        began = (await turn_rig.client.get_workflow_handle(key.workflow_id).describe()).start_time
        await turns.until(key, _escalated)
        request = await request_of(turns, key)
        assert request.escalate_at is not None
        given = {"subject": "cfo", "question_hash": request.question_hash, "received_at": request.escalate_at}
        decision = signer.sign_decision(yes(key, **given))
        await answer(turn_rig.store, decision)
        receipt = await turns.signoff.decide(decision)
        # A repeated question would wait for approvers again, as long as the first time.
        view = await turns.until(key, lambda v: v.result is not None or _revision(v) > 1)
    assert request.opened_at is not None
    assert (request.opened_at - began).total_seconds() > 0.5
    assert (receipt.status, _revision(view), view.calls[0].state) == ("accepted", 1, "ok")
    assert len(ledger.rows) == 1


async def test_edit_restarts_reminder_and_deadline(turn_rig: TurnRig) -> None:
    policy = ApprovalPolicy(edit="approve", timeout=6.0, remind_after=1.0, quorum=2)
    catalog = catalog_of([pay_tool(Ledger(), policy)])
    async with turn_rig.running(catalog, SCRIPT, people=PEOPLE) as turns:
        key = await turns.start()
        first = some((await turns.waiting(key)).calls[0].approval)
        await turns.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.reminded == 1)
        await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 1}))
        edited = await request_of(turns, key)
        await turns.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.reminded == 1)
        result = await turns.signoff.result(key)
        receipt = await turns.signoff.decide(yes(key, subject="approver", revision=2))
    assert first.remind_at
    assert edited.opened_at is not None
    assert edited.expires_at is not None
    assert edited.opened_at > first.remind_at[0]
    assert (edited.revision, edited.reminded, edited.state) == (2, 0, "pending")
    assert edited.expires_at == edited.opened_at + timedelta(seconds=6)
    denied = some(result.calls[0].denied)
    assert denied.decided_at is not None
    assert (denied.source, receipt.code) == ("timeout", "expired")
    assert denied.decided_at >= edited.expires_at


async def test_unanswered_question_about_a_lost_call_leaves_outcome_unknown(turn_rig: TurnRig) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(timeout=DAY))
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start()
        request = some((await turns.waiting(key)).calls[0].approval)
        await turn_rig.store.claim(request.digest, workflow=key.workflow_id, call="c1.1", tool="pay")
        await turns.signoff.decide(yes(key))
        await turns.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.kind == "in_doubt")
        await turns.forward(key, days=2)
        result = await turns.signoff.result(key)
        late = await turns.signoff.decide(yes(key, revision=2))
    assert [outcome.code for outcome in result.calls] == ["in_doubt"]
    assert (late.code, late.state, late.message) == ("expired", "timed_out", "")
