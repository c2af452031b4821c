"""A remembered answer: its calls, its uses, and its revocation."""

from collections.abc import AsyncIterator
from typing import Any

from demo.polling import expect
from demo.proof import recorded
from demo.scenes import Scene
from demo.stage import Stage
from signoff.contracts.call import RuleReference
from signoff.contracts.ids import TurnKey

_WHERE = "args.office == 'Lisbon' && args.amount <= 100.0"
_REMEMBER = {"scope": "tenant", "where": _WHERE, "seconds": 3600, "uses": 2}
_TOP_UPS = "SELECT office, amount FROM top_ups ORDER BY entry"


async def play(stage: Stage) -> AsyncIterator[Scene]:
    """Play every scene in order."""
    first = await _ask(stage, "Lisbon", 80)
    await stage.suspended(first)
    yield await remembered(stage, first)
    grant = await _one_grant(stage)
    used = await _ask(stage, "Lisbon", 95)
    yield await by_grant(stage, used, grant)
    yield await not_for_others(stage, grant)
    yield await taken_back(stage, grant)
    found = await recorded(stage, used)
    expect("the use in the record", [grant], [facts["grant"] for _, facts in found.of(used, "grant")])
    yield Scene(found.words, used)


async def remembered(stage: Stage, key: TurnKey) -> Scene:
    """A predicate that is false for the present call is refused. A true one is stored with the approval."""
    wrong = _REMEMBER | {"where": "args.amount > 100.0"}
    refused = await stage.answer(key, "ana", verdict="approved", remember=wrong)
    expect("a predicate that is false of this call", ("refused", "malformed"), (refused["status"], refused["code"]))
    receipt = await stage.answer(key, "ana", verdict="approved", remember=_REMEMBER)
    expect("a predicate that is true of it", "accepted", receipt["status"])
    expect("the call itself", "ok", (await stage.outcome(key)).code)
    return Scene(
        f"80 EUR for Lisbon approved, and the next 2 where `{_WHERE}`; a predicate false of it was refused", key
    )


async def by_grant(stage: Stage, key: TurnKey, grant: str) -> Scene:
    """The next matching call runs in another session without an approver."""
    outcome = await stage.outcome(key)
    expect(
        "the next call like it",
        ("ok", RuleReference(kind="grant", name=grant), ""),
        (outcome.code, outcome.rule, outcome.approval_id),
    )
    expect("top-ups", [("Lisbon", 80.0), ("Lisbon", 95.0)], stage.rows(_TOP_UPS))
    left = [each["uses_left"] for each in await _grants(stage)]
    expect("uses that are left", [1], left)
    return Scene(
        f"95 EUR for Lisbon ran in another session by rule `grant:{grant[:8]}…`; no approver was asked; 1 use is left",
        key,
    )


async def not_for_others(stage: Stage, grant: str) -> Scene:
    """Another office or a larger amount needs approval, and does not use the grant."""
    for office, amount in (("Porto", 80), ("Lisbon", 300)):
        key = await _ask(stage, office, amount)
        await stage.suspended(key)
        receipt = await stage.answer(key, "bo", verdict="denied", reason="not this one")
        expect(f"{amount} EUR for {office}", "accepted", receipt["status"])
        expect(f"{amount} EUR for {office}", "denied", (await stage.outcome(key)).code)
    expect("uses that are left", [(grant, 1)], [(each["id"], each["uses_left"]) for each in await _grants(stage)])
    return Scene("Porto, and 300 EUR for Lisbon: people were asked, Bo said no both times; the grant is not spent", key)


async def taken_back(stage: Stage, grant: str) -> Scene:
    """Ana revokes it: approvers are asked again from then on."""
    json = {"content-type": "application/json"}
    reply = await stage.http.delete(f"/v1/grants/{grant}", params={"as": "ana"}, headers=json)
    expect("DELETE /v1/grants", (200, "ana"), (reply.status_code, reply.json().get("revoked_by")))
    key = await _ask(stage, "Lisbon", 60)
    await stage.suspended(key)
    expect("grants that are left", [], await _grants(stage))
    expect("top-ups", 2, len(stage.rows(_TOP_UPS)))
    return Scene("Ana takes it back, one use left: 60 EUR for Lisbon waits for people again", key)


async def _ask(stage: Stage, office: str, amount: int) -> TurnKey:
    return await stage.ask(f"top up petty cash in {office} by {amount} euro", user="clerk")


async def _grants(stage: Stage) -> list[dict[str, Any]]:
    reply = await stage.http.get("/v1/grants")
    expect("GET /v1/grants", 200, reply.status_code)
    found: list[dict[str, Any]] = reply.json()["grants"]
    return found


async def _one_grant(stage: Stage) -> str:
    found = await _grants(stage)
    expect(
        "grants", [(_WHERE, ["ana"], 2)], [(each["like"]["where"], each["people"], each["uses_left"]) for each in found]
    )
    return str(found[0]["id"])
