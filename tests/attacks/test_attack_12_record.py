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


async def test_audit_entries_of_a_turn_are_marked_as_its_own(site: AttackSite, impostor: Impostor) -> None:
    # An impostor under a turn's id has entries recorded: each is marked `by: turn`, or missing. Without `by` in
    # `journal._own` all four entries were unmarked.
    to = payee()
    key = await site.person("rui").ask([("pay", {"amount": 9, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    forged = await impostor.take_over(key)
    await forged.schedule(names.RECORD, "r1", RecordTask(audit=false_entries(key, key)))
    records = await site.person("aud").record(key)
    assert len(records) > 0
    assert [record for record in claims(records) if not is_turns_word(record)] == []


async def test_forged_audit_entry_cannot_replace_a_true_one(site: AttackSite, impostor: Impostor) -> None:
    # Entries are unique by key: an entry that the turn writes first under the key of a tool activity's entry does not
    # displace it. Without `TURNS_KEYS` in `journal._own` neither execution nor outcome was recorded.
    to, ana = payee(), site.person("ana")
    args = {"amount": 9, "to": to}
    first = await site.person("rui").ask([("pay", args)])
    await ana.approve(approval_id(first))
    await site.person("rui").result(first)
    # Learn the keys of true entries from another turn.
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
    claim = impostor.claim(ctx, digests[1], await forged.decisions())
    reply = await forged.run("pay", args, claim)
    assert reply.outcome is not None
    assert (reply.outcome.code, site.amounts(to)) == ("ok", [9, 9])
    entries = [each for each in await site.person("aud").record(key) if SAID not in json.dumps(each)]
    assert {"execution", "outcome"} <= {each["kind"] for each in entries}


async def test_turn_cannot_write_into_another_turns_audit_log(site: AttackSite, impostor: Impostor) -> None:
    # Entries for another turn's chain are not recorded. Without the comparison of streams in `journal._own` all four
    # entries were in the other turn's audit log.
    to, rui = payee(), site.person("rui")
    key, other = [await rui.ask([("pay", {"amount": 9, "to": to})]) for _ in range(2)]
    for each in (key, other):
        await site.person("ana").waiting(approval_id(each))
    forged = await impostor.take_over(key)
    await forged.schedule(names.RECORD, "r1", RecordTask(audit=false_entries(other, other)))
    assert claims(await site.person("aud").record(other)) == []
