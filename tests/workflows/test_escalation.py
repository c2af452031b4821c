"""What time brings while nobody answers, over days and weeks, with each turn's own clock moved forward."""

from datetime import UTC, datetime, timedelta

import pytest
from desk_fixtures import ApprovalPolicy, Bench, Ledger, bench, catalog_of, pay_tool, yes
from temporalio import activity
from temporalio.client import Client
from temporalio.testing import TimeSkipper

from signoff.audit.log import AuditLog
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.turn import TurnView
from signoff.registry.people import FixedDirectory, development_directory
from signoff.signing import PrivateKeys, Signer, new_key
from signoff.store.store import Store
from signoff.testing.scripted import calls, respond

DAY = 86_400.0
SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]
PEOPLE = development_directory([Person(id="cfo", roles=("cfo",)), Person(id="ana", roles=("approvers",))])
WEEKS = ApprovalPolicy(
    timeout=28 * DAY, remind_after=7 * DAY, escalate_after=14 * DAY, escalate_to=("role:cfo",), on_timeout="escalate"
)


async def forward(desk: Bench, key: TurnKey, days: float) -> None:
    """Move the turn's own clock."""
    handle = desk.client.get_workflow_handle(key.workflow_id)
    await TimeSkipper(desk.client).fast_forward(handle, timedelta(days=days))


async def request_of(desk: Bench, key: TurnKey) -> ApprovalRequest:
    """The request of the turn's first call."""
    found = (await desk.signoff.view(key)).calls[0].approval
    assert found is not None
    return found


@pytest.mark.row("V09")
async def test_weeks_of_silence(client: Client, store: Store, task_queue: str) -> None:
    """Reminded after a week, escalated after two, put off after four, denied after eight; each shows in the turn."""
    ledger = Ledger()
    catalog = catalog_of([pay_tool(ledger, WEEKS)])
    async with bench(client, store, task_queue, catalog, SCRIPT, people=PEOPLE) as desk:
        key = await desk.start()
        opened = (await desk.waiting(key)).calls[0].approval
        assert opened is not None
        assert opened.opened_at is not None
        refused = await desk.signoff.decide(yes(key, subject="cfo"))

        await forward(desk, key, 8)
        reminded = await desk.until(
            key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.reminded == 1
        )

        await forward(desk, key, 7)
        await desk.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.escalated)
        escalated = await request_of(desk, key)
        assert (escalated.approvers, escalated.expires_at) == (("role:approvers", "role:cfo"), opened.expires_at)

        await forward(desk, key, 14)
        await desk.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.extended)
        put_off = await request_of(desk, key)
        await forward(desk, key, 28)
        result = await desk.signoff.result(key)
        late = await desk.signoff.decide(yes(key, subject="cfo"))
    assert reminded.state == "suspended"
    assert refused.code == "not_allowed"
    assert (put_off.state, put_off.expires_at) == ("pending", opened.opened_at + timedelta(days=56))
    denied = result.calls[0].denied
    assert denied is not None
    assert (denied.source, late.code) == ("timeout", "expired")
    assert ledger.rows == []


async def test_who_it_was_escalated_to_may_decide(client: Client, store: Store, task_queue: str) -> None:
    """After the escalation the chief's yes runs the call; those asked first still could."""
    ledger = Ledger()
    catalog = catalog_of([pay_tool(ledger, WEEKS)])
    async with bench(client, store, task_queue, catalog, SCRIPT, people=PEOPLE) as desk:
        key = await desk.start()
        await desk.waiting(key)
        await forward(desk, key, 15)
        await desk.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.escalated)
        receipt = await desk.signoff.decide(yes(key, subject="cfo"))
        await desk.signoff.result(key)
    assert (receipt.status, receipt.decided_by) == ("accepted", "cfo")
    assert len(ledger.rows) == 1


def _revision(view: TurnView) -> int:
    approval = view.calls[0].approval
    return 0 if approval is None else approval.revision


class _AwayAtFirst(FixedDirectory):
    """Answers the gates at their second try."""

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """See `Directory`."""
        if activity.in_activity() and activity.info().activity_type == names.GATE and activity.info().attempt == 1:
            raise StoreUnavailable("away for a moment")
        return super().find(person_id, tenant)


async def test_the_first_word_after_an_escalation_counts_where_clocks_differ(
    client: Client, store: Store, task_queue: str
) -> None:
    """The gates were held up, so by the turn's clock it was asked a second before its record was written: an answer of
    the second between both escalations is accepted, so it runs the call, and nobody is asked again."""
    ledger, signer = Ledger(), Signer(PrivateKeys(keys=(new_key(datetime.now(UTC)),)))
    policy = ApprovalPolicy(escalate_after=DAY / 2, escalate_to=("role:cfo",))
    people = _AwayAtFirst(PEOPLE.all())
    catalog = catalog_of([pay_tool(ledger, policy)])
    async with bench(client, store, task_queue, catalog, SCRIPT, people=people, verifier=signer.verifier()) as desk:
        key = await desk.start()
        await desk.waiting(key)
        await forward(desk, key, 0.6)
        await desk.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.escalated)
        request = await request_of(desk, key)
        assert request.escalate_at is not None
        given = {"subject": "cfo", "question_hash": request.question_hash, "received_at": request.escalate_at}
        receipt = await desk.signoff.decide(signer.sign_decision(yes(key, **given)))
        # Asked anew it would wait for people again, for as long as the first time.
        view = await desk.until(key, lambda v: v.result is not None or _revision(v) > 1)
    records = await AuditLog(store).stream(key.workflow_id)
    (written,) = (record.written_at / 1000 for record in records if record.kind == "request")
    assert request.opened_at is not None
    assert written - request.opened_at.timestamp() > 0.5
    assert (receipt.status, _revision(view), view.calls[0].state) == ("accepted", 1, "ok")
    assert len(ledger.rows) == 1


async def test_an_edit_starts_the_clocks_anew(client: Client, store: Store, task_queue: str) -> None:
    """The others need their time for the new arguments; a timer of the old revision does nothing to the new one."""
    policy = ApprovalPolicy(timeout=10 * DAY, remind_after=4 * DAY, quorum=2)
    catalog = catalog_of([pay_tool(Ledger(), policy)])
    async with bench(client, store, task_queue, catalog, SCRIPT, people=PEOPLE) as desk:
        key = await desk.start()
        await desk.waiting(key)
        await forward(desk, key, 9)
        await desk.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.reminded == 1)
        await desk.signoff.decide(yes(key, subject="ana", edited_args={"amount": 1}))
        edited = await request_of(desk, key)
        await forward(desk, key, 3)
        still = await request_of(desk, key)
        await forward(desk, key, 2)
        await desk.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.reminded == 1)
        await forward(desk, key, 6)
        result = await desk.signoff.result(key)
    assert edited.opened_at is not None
    assert (edited.reminded, edited.expires_at) == (0, edited.opened_at + timedelta(days=10))
    assert (still.state, still.reminded) == ("pending", 0)
    assert result.calls[0].denied is not None
    assert result.calls[0].denied.source == "timeout"


async def test_nobody_says_what_happened(client: Client, store: Store, task_queue: str) -> None:
    """A doubt that nobody answers is given up at its deadline."""
    tool = pay_tool(Ledger(), ApprovalPolicy(timeout=DAY))
    async with bench(client, store, task_queue, catalog_of([tool]), SCRIPT) as desk:
        key = await desk.start()
        request = (await desk.waiting(key)).calls[0].approval
        assert request is not None
        await store.claim(request.digest, workflow=key.workflow_id, call="c1.1", tool="pay")
        await desk.signoff.decide(yes(key))
        await desk.until(key, lambda v: v.calls[0].approval is not None and v.calls[0].approval.kind == "in_doubt")
        await forward(desk, key, 2)
        result = await desk.signoff.result(key)
        late = await desk.signoff.decide(yes(key, revision=2))
    assert [outcome.code for outcome in result.calls] == ["in_doubt"]
    assert (late.code, late.message) == ("expired", "nobody answered in time, so this was given up")
