"""Attack 12: a workflow writes into the record what never happened, in its own name and in others'."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from attack_site import AttackSite, approval_id, is_turns_word, payee
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.activity_messages import RecordTask
from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import TurnKey

SAID = "Ana said yes on the phone"


def false_entries(key: TurnKey, stream: TurnKey) -> tuple[AuditEntry, ...]:
    """What a turn may claim: that Ana answered, how the request ended, that its call ran."""
    approval, at = approval_id(key), datetime.now(UTC)

    def entry(kind: Any, **data: Any) -> AuditEntry:
        found = {"approval": approval, "reason": SAID, **data}
        return AuditEntry(
            stream=stream.workflow_id,
            key=f"{kind}/{uuid.uuid4().hex}",
            kind=kind,
            at=at,
            tenant="main",
            subject="ana",
            data=found,
        )

    return (
        entry("attempt", verdict="approved", status="accepted"),
        entry("verdict", verdict="approved", state="approved"),
        entry("execution", call="c1.1", tool="pay"),
        entry("outcome", call="c1.1", tool="pay", code="ok"),
    )


def claims(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if SAID in json.dumps(record)]


async def test_what_a_turn_claims_of_itself_is_marked_as_its_word(site: AttackSite, impostor: Impostor) -> None:
    # An impostor under a turn's id has entries written: each says `by: turn`, or is not there. Without `by` in
    # `journal._own` all four entries stood there unmarked.
    to = payee()
    key = await site.person("rui").ask([("pay", {"amount": 9, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    forged = await impostor.take_over(key)
    await forged.schedule(names.RECORD, "r1", RecordTask(audit=false_entries(key, key)))
    records = await site.person("aud").record(key)
    assert len(records) > 0
    assert [record for record in claims(records) if not is_turns_word(record)] == []


async def test_a_turn_cannot_take_the_place_of_what_truly_happened(site: AttackSite, impostor: Impostor) -> None:
    # An entry is written once by its key: one that the turn wrote first, under the key of what the tool's activity will
    # write, keeps nothing true out of the record. Without `TURNS_KEYS` in `journal._own` neither execution nor outcome
    # came into the record.
    to, ana = payee(), site.person("ana")
    args = {"amount": 9, "to": to}
    first = await site.person("rui").ask([("pay", args)])
    await ana.approve(approval_id(first))
    await site.person("rui").result(first)
    # How the true entries are keyed is read off a turn of one's own.
    true = [each for each in await site.person("aud").record(first) if each["kind"] in ("execution", "outcome")]
    assert len(true) == 2
    key = await site.person("rui").ask([("pay", args)])
    shown = await ana.waiting(approval_id(key))
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    digests = [impostor.digest(each, "pay", args) for each in (await impostor.ctx(first), ctx)]
    forged = await impostor.take_over(key, **{names.STATE: view})
    await ana.decide(shown)

    def moved(text: str) -> str:
        return text.replace(approval_id(first), approval_id(key)).replace(digests[0], digests[1])

    lies = [
        AuditEntry(
            stream=key.workflow_id,
            key=moved(each["key"]),
            kind=each["kind"],
            at=datetime.now(UTC),
            tenant="main",
            subject="ana",
            data={"reason": SAID},
        )
        for each in true
    ]
    await forged.schedule(names.RECORD, "r1", RecordTask(audit=tuple(lies)))
    permit = impostor.permit(ctx, digests[1], await forged.decisions())
    reply = await forged.run("pay", args, permit)
    assert reply.outcome is not None
    assert (reply.outcome.code, site.amounts(to)) == ("ok", [9, 9])
    entries = [each for each in await site.person("aud").record(key) if SAID not in json.dumps(each)]
    assert {"execution", "outcome"} <= {each["kind"] for each in entries}


async def test_a_turn_writes_into_no_other_turns_record(site: AttackSite, impostor: Impostor) -> None:
    # Entries for another turn's chain are not written. Without the comparison of streams in `journal._own` all four
    # entries stood in the other turn's record.
    to, rui = payee(), site.person("rui")
    key, other = [await rui.ask([("pay", {"amount": 9, "to": to})]) for _ in range(2)]
    for each in (key, other):
        await site.person("ana").waiting(approval_id(each))
    forged = await impostor.take_over(key)
    await forged.schedule(names.RECORD, "r1", RecordTask(audit=false_entries(other, other)))
    assert claims(await site.person("aud").record(other)) == []
