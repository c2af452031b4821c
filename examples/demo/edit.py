"""A payment whose amount an approver lowers: checked, judged and asked again before it is paid."""

from collections.abc import AsyncIterator
from typing import Any

from demo.polling import Unexpected, expect
from demo.proof import recorded
from demo.scenes import Scene
from demo.stage import Stage
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import ResultPart

_PROPOSED = {"invoice": "INV-4713", "payee": "Nordwind", "amount": 9400.0}
_LOWERED = _PROPOSED | {"amount": 7400}
_PAYMENTS = "SELECT invoice, amount FROM payments"


async def play(stage: Stage) -> AsyncIterator[Scene]:
    """Play every scene in order."""
    key = await stage.ask("pay 9400 euro to Nordwind for INV-4713", user="clerk")
    await stage.suspended(key)
    yield await refused_edits(stage, key)
    yield await lowered(stage, key)
    yield await agreed_anew(stage, key)
    yield await told_and_recorded(stage, key)


async def refused_edits(stage: Stage, key: TurnKey) -> Scene:
    """Bo approves 9,400. Invalid arguments, or arguments that the policy denies, change nothing."""
    expect("the first yes", "counted", (await stage.answer(key, "bo", verdict="approved"))["status"])
    text = await _edit(stage, key, _PROPOSED | {"amount": "a little less"})
    huge = await _edit(stage, key, _PROPOSED | {"amount": 74000})
    expect("an amount in words", ("refused", "malformed", True), (*_said(text), "amount" in text["message"]))
    expect("an amount that the policy denies", ("refused", "not_allowed"), _said(huge))
    request = await stage.asked(key)
    expect("the request after both", (1, ["bo"]), (request.revision, [vote.subject for vote in request.votes]))
    return Scene("9,400 EUR, one yes: “a little less” is malformed, 74,000 denied by `deny_if`; nothing changed", key)


async def lowered(stage: Stage, key: TurnKey) -> Scene:
    """Ana lowers the amount: a new digest and the next revision make Bo's approval void."""
    before = await stage.asked(key)
    receipt = await _edit(stage, key, _LOWERED)
    expect("the edit", ("counted", 1, 2), (receipt["status"], receipt["votes"], receipt["needed"]))
    request = await stage.asked(key)
    expect("the revision", (2, "ana"), (request.revision, request.edited_by))
    expect("whether the digest is another", True, request.digest != before.digest)
    expect("whose votes count", ["ana"], [vote.subject for vote in request.votes])
    amounts = [next(row.value for row in rows if row.name == "amount") for rows in (request.before, request.card.rows)]
    expect("the amounts on the card, old and new", ["9400", "7400"], [amount.removesuffix(".0") for amount in amounts])
    return Scene("Ana lowers it to 7,400: revision 2, a new digest, old and new on the card; Bo's yes is void", key)


async def agreed_anew(stage: Stage, key: TurnKey) -> Scene:
    """An answer to the old revision is stale. An answer to the present one releases the payment."""
    old = await stage.answer(key, "bo", verdict="approved", revision=1)
    expect("an answer to revision 1", ("refused", "stale"), _said(old))
    expect("payments before the second yes", [], stage.rows(_PAYMENTS))
    new = await stage.answer(key, "bo", verdict="approved", revision=2)
    expect("an answer to revision 2", "accepted", new["status"])
    expect("the payment", "ok", (await stage.outcome(key)).code)
    expect("payments", [("INV-4713", 7400.0)], stage.rows(_PAYMENTS))
    return Scene("Bo's answer to revision 1 is stale; he agrees to revision 2: 7,400 EUR are paid, once", key)


async def told_and_recorded(stage: Stage, key: TurnKey) -> Scene:
    """The model reads the change, and the audit log names its author."""
    note = await _note(stage, key)
    expect("the model's note about the edit", True, note.startswith("A person changed") and "amount is 7400" in note)
    found = await recorded(stage, key)
    changed = [(who, facts["changed"]) for who, facts in found.of(key, "revision")]
    expect("the change in the record", [("ana", ["amount"])], changed)
    return Scene(f"the model read the change; {found.words}", key)


async def _edit(stage: Stage, key: TurnKey, args: dict[str, Any]) -> dict[str, Any]:
    return await stage.answer(key, "ana", verdict="approved", revision=1, edited_args=args)


def _said(receipt: dict[str, Any]) -> tuple[str, str]:
    return receipt["status"], receipt["code"]


async def _note(stage: Stage, key: TurnKey) -> str:
    for message in await stage.signoff.transcript(key):
        for part in message.parts:
            if isinstance(part, ResultPart) and part.note:
                return part.note
    raise Unexpected(f"turn `{key.turn}`: its transcript lacks the note about the edit")
