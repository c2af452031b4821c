import asyncio
from asyncio import to_thread
from typing import Any

import pytest
from client_rig import ClientRig
from tables import table

from signoff_client import Gate, NotRun


async def test_guarded_function_runs_with_the_approved_arguments(rig: ClientRig) -> None:
    gate = rig.gate()

    @gate.guard(effect="Refund {euro} EUR for {order}", key=lambda order, euro: f"guard-{order}-{euro}")
    async def refund(order: str, euro: float) -> str:
        """Pays money back."""
        return f"refunded {euro} for {order}"

    assert await refund("G1", euro=20) == "refunded 20 for G1"
    assert (refund.__name__, refund.__doc__) == ("refund", "Pays money back.")
    task = asyncio.create_task(refund("G1", 200))
    # Proposed in any order: the agent's text is the function's.
    say = "Refund 200 EUR for G1"
    waiting = rig.call({"order": "G1", "euro": 200}, key="guard-G1-200", says=say, wait=0)
    await waiting.settle()
    assert (await rig.request(waiting)).agent_says == say
    await rig.decide(waiting, edited_args={"order": "G1", "euro": 150})
    assert await task == "refunded 150 for G1"


async def test_guarded_function_runs_without_an_event_loop(rig: ClientRig) -> None:
    keys = iter(("guard-2", "guard-3"))

    @rig.gate().guard(key=lambda order, euro: next(keys))
    def refund(order: str, euro: float) -> str:
        return f"refunded {euro} for {order}"

    assert await to_thread(refund, "G2", 20) == "refunded 20 for G2"
    with pytest.raises(NotRun, match="a rule denies it"):
        await to_thread(refund, "G2", 2_000)


async def test_guarded_function_that_is_not_run_raises_or_explains(rig: ClientRig) -> None:
    async def refund(order: str, euro: float = 2_000) -> str:
        raise AssertionError("run all the same")

    with pytest.raises(NotRun, match="a rule denies it") as raised:
        await rig.gate().guard(key=lambda order: "guard-4")(refund)("G3")
    assert raised.value.call.state == "denied"
    explained = await rig.gate().guard(key=lambda order: "guard-4", explain=True)(refund)("G3")
    assert explained.startswith("Not run: a rule denies it")


async def test_error_of_a_guarded_function_is_raised_unchanged(rig: ClientRig) -> None:
    @rig.gate().guard(tool="refund", key=lambda order, euro: "guard-5")
    async def fails(order: str, euro: float) -> str:
        raise LookupError("no such order")

    with pytest.raises(LookupError):
        await fails("G4", 20)
    again = rig.call({"order": "G4", "euro": 20}, key="guard-5")
    await again.settle()
    assert again.text == "It failed: LookupError: no such order"

    @rig.gate().guard(key=lambda amount: "guard-6")
    async def pay(amount: float) -> str:
        raise AssertionError("Signoff runs it")

    assert await pay(20) == "paid"


def unnamed(*orders: str) -> None:
    """A function whose arguments have no names."""


def named(order: str) -> None:
    """A function with one argument."""


@pytest.mark.parametrize(
    ("function", "effect", "words"),
    [
        (unnamed, "", "no name to show to approvers"),
        (named, "Refund {euro}", "names `euro`, which is not an argument"),
        (named, "Refund {order.__class__}", "which is not an argument"),
        (named, "Refund {}", "which is not an argument"),
    ],
)
def test_function_that_cannot_be_guarded_is_refused_at_once(function: Any, effect: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Gate("https://signoff.example.com", "token").guard(effect)(function)


@table(
    ("url", "token", "words"),
    ("signoff.example.com", "t", "is invalid"),
    ("ftp://signoff.example.com", "t", "is invalid"),
    ("https://", "t", "is invalid"),
    ("https://ana:secret@signoff.example.com", "t", "is invalid"),
    ("http://signoff.example.com", "t", "is not https"),
    ("https://signoff.example.com", "two words", "is not a valid token"),
    ("https://signoff.example.com", "t\n", "is not a valid token"),
)
def test_invalid_gate_is_refused_at_once(url: str, token: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        Gate(url, token)
    assert "secret" not in str(raised.value).replace(url, "")
    assert token not in str(raised.value).split()


def test_local_gate_needs_no_tls() -> None:
    assert Gate("http://127.0.0.1:8300")
    assert Gate("http://localhost:8300/", "t")
