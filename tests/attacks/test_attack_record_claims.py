"""A turn ends other people's questions, and has the record and the tool told of deciders that there were none."""

from datetime import UTC, datetime
from typing import Any

import pytest
from attack_site import AttackSite, approval_id, is_turns_word, payee
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.activity_messages import RecordTask
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import RuleReference
from signoff.contracts.decision import Decision

pytestmark = pytest.mark.timeout(300)

BOARD = RuleReference(kind="global", name="board_resolution")


@pytest.mark.parametrize("state", ["cancelled", "approved"])
async def test_nobody_ends_another_turns_question(state: str, site: AttackSite, impostor: Impostor) -> None:
    # A turn of Zoe's writes of Rui's question that it has ended: it waits, and can be answered. Without the comparison
    # of the approval with the stream in `journal._write_endings` it was gone from all lists, and whoever answered it
    # was told that the turn had been stopped.
    to, ana = payee(), site.person("ana")
    key = await site.person("rui").ask([("pay", {"amount": 9, "to": to})])
    shown = await ana.waiting(approval_id(key))
    own = await site.person("zoe").ask([])
    await site.person("zoe").result(own)
    forged = await impostor.stand(own)
    facts = {"approval": approval_id(key), "revision": 1, "state": state}
    entry = AuditEntry(
        stream=own.workflow_id, key=f"ending/{state}", kind="ending", at=datetime.now(UTC), tenant="main", data=facts
    )
    await forged.schedule(names.RECORD, "r1", RecordTask(audit=(entry,)))
    assert (await ana.see(approval_id(key))).view["state"] == "pending"
    await ana.decide(shown)
    await site.person("rui").result(key)
    assert site.amounts(to) == [9]


async def test_the_record_names_no_decider_that_only_the_permit_names(site: AttackSite, impostor: Impostor) -> None:
    # Ana has approved; the permit says that Bo and the board did: the record of what ran says who did. Without the
    # permit that `RunRights.derive` makes of what it found, `begins, approved by bo, adm` stood there as the worker's
    # own word, with a rule of the turn's, and the tool was told so.
    to, ana = payee(), site.person("ana")
    args: dict[str, Any] = {"amount": 9, "to": to}
    key = await site.person("rui").ask([("pay", args)])
    shown, ctx = await ana.waiting(approval_id(key)), await impostor.ctx(key)
    forged = await impostor.take_over(key)
    await ana.decide(shown)
    made_up = [Decision(approval_id=approval_id(key), verdict="approved", subject=who) for who in ("bo", "adm")]
    digest = impostor.digest(ctx, "pay", args)
    permit = impostor.permit(ctx, digest, [*await forged.decisions(), *made_up], rule=BOARD)
    await forged.run("pay", args, permit)
    assert site.amounts(to) == [9]
    record = [each for each in await site.person("aud").record(key) if not is_turns_word(each)]
    (begins,) = [each["data"] for each in record if each["kind"] == "execution"]
    assert [each["subject"] for each in begins["decisions"]] == ["ana"]
    assert begins["rule"] != BOARD.model_dump()
