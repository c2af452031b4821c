"""A payment that two people release: votes, a reminder, an escalation. An hour of the manifest is a second here."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from demo.polling import expect, until
from demo.proof import recorded
from demo.scenes import Scene
from demo.stage import Stage
from signoff.contracts.ids import TurnKey

_PAYMENTS = "SELECT invoice, amount FROM payments ORDER BY payment"


async def play(stage: Stage) -> AsyncIterator[Scene]:
    """Play every scene in order. The second payment waits for its deadline while the first one is released."""
    first, second = await asyncio.gather(
        stage.ask("pay 12000 euro to Nordwind for INV-4711", user="clerk"),
        stage.ask("pay 8000 euro to Sudwest for INV-4712", user="clerk"),
    )
    await asyncio.gather(stage.suspended(first), stage.suspended(second))
    yield await too_early(stage, second)
    yield await one_is_not_enough(stage, first)
    yield await in_place_of(stage, first)
    yield await reminded(stage, second)
    yield await escalated(stage, second)
    yield await recorded_twice(stage, first, second)


async def one_is_not_enough(stage: Stage, key: TurnKey) -> Scene:
    """Ana approves twice, and the clerk may not. Nothing is paid."""
    once = await stage.answer(key, "ana", verdict="approved", reason="the invoice is right")
    twice = await stage.answer(key, "ana", verdict="approved")
    clerk = await stage.answer(key, "clerk", verdict="approved")
    expect("the first yes", ("counted", 1, 2), _counted(once))
    expect("the same person's second yes", ("counted", 1, 2, "duplicate"), (*_counted(twice), twice["code"]))
    expect("the yes of who asked", ("refused", "self_approval"), (clerk["status"], clerk["code"]))
    expect("payments after one yes", [], _paid(stage))
    return Scene(
        "12,000 EUR: Ana approved (1 of 2) and repeated it (still 1); the requester was refused; no payment", key
    )


async def in_place_of(stage: Stage, key: TurnKey) -> Scene:
    """Dee answers for Bo. Bo's later answer returns the name of the first."""
    dee = await stage.answer(key, "dee", verdict="approved", reason="for Bo during his absence")
    outcome = await stage.outcome(key)
    votes = [(vote.subject, vote.on_behalf) for vote in (await stage.asked(key)).votes]
    bo = await stage.answer(key, "bo", verdict="denied", reason="too late")
    expect("the second yes", "accepted", dee["status"])
    expect("the payment", "ok", outcome.code)
    expect("whose votes count", [("ana", ""), ("dee", "bo")], votes)
    expect("payments", [("INV-4711", 12000.0)], _paid(stage))
    expect("the answer after it", ("refused", "already_decided", "dee"), (bo["status"], bo["code"], bo["decided_by"]))
    return Scene("Dee decided for Bo: 2 of 2, paid once; Bo's later denial was refused, and its receipt names Dee", key)


async def too_early(stage: Stage, key: TurnKey) -> Scene:
    """One approval. An approver of the escalation may not decide before the deadline."""
    expect("the first yes", ("counted", 1, 2), _counted(await stage.answer(key, "ana", verdict="approved")))
    early = await stage.answer(key, "cleo", verdict="approved")
    expect("the officer's yes before the deadline", ("refused", "not_allowed"), (early["status"], early["code"]))
    return Scene("8,000 EUR: Ana approved (1 of 2); the CFO was refused, since the request has not escalated", key)


async def reminded(stage: Stage, key: TurnKey) -> Scene:
    """Silence, and a reminder."""
    await until("the reminder", lambda: stage.asked(key), lambda request: request.reminded == 1)
    return Scene("the 8,000 EUR after six hours (here seconds) of silence: reminded", key)


async def escalated(stage: Stage, key: TurnKey) -> Scene:
    """After the deadline, the officer may decide too, and does."""
    request = await until("the escalation", lambda: stage.asked(key), lambda request: request.escalated)
    expect("who may decide now", True, "role:cfo" in request.approvers)
    expect("that the deadline was put off", True, request.extended)
    cleo = await stage.answer(key, "cleo", verdict="approved")
    expect("the officer's yes", "accepted", cleo["status"])
    expect("the second payment", "ok", (await stage.outcome(key)).code)
    expect("payments", [("INV-4711", 12000.0), ("INV-4712", 8000.0)], _paid(stage))
    return Scene("after twelve hours: put off once and escalated; the CFO is the second of two, paid once", key)


async def recorded_twice(stage: Stage, first: TurnKey, second: TurnKey) -> Scene:
    """The verified audit log of both has every answer, including the refused ones."""
    found = await recorded(stage, first, second)
    answers = [(who, facts["status"], facts.get("receipt", "")) for who, facts in found.of(first, "attempt")]
    expect("the clerk's refused attempt in the record", True, ("clerk", "refused", "self_approval") in answers)
    expect("Bo's late attempt in the record", True, ("bo", "refused", "already_decided") in answers)
    ran = [sorted(each["subject"] for each in facts["decisions"]) for _, facts in found.of(first, "execution")]
    expect("the approvers of the payment", [["ana", "dee"]], ran)
    return Scene(found.words, first)


def _counted(receipt: dict[str, Any]) -> tuple[Any, ...]:
    return receipt["status"], receipt["votes"], receipt["needed"]


def _paid(stage: Stage) -> list[tuple[Any, ...]]:
    return stage.rows(_PAYMENTS)
