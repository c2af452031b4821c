"""In any order, no permit is used twice, and no denied, withdrawn, expired or changed call is used."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from call_rig import CallRig, refund_tool
from gateway_rig import PEOPLE, gateway_rig
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of

from signoff.contracts.ids import TurnKey
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.handler_verdict import HandlerCall
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.catalog import Catalog
from signoff.store.store import Store

CALLS: Final = 14
STEPS: Final = 9
_GRANT_SECONDS: Final = 3_600.0
_TIMEOUT_SECONDS: Final = 7_200.0
_EURO: Final = 200
_EDITED: Final = 150
_SAYS: dict[str, str] = {}
"""The policy's current answer for the call of an order."""


async def present_policy(call: HandlerCall, context: Mapping[str, Any]) -> str:
    return _SAYS[str(call.args["order"])]


def changing_catalog(ledger: Ledger) -> Catalog:
    policy = ApprovalPolicy(
        handler="test_call_properties:present_policy",
        edit="approve",
        grant_ttl=_GRANT_SECONDS,
        timeout=_TIMEOUT_SECONDS,
    )
    actor = Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",)))
    return catalog_of([refund_tool(policy)], actors=[actor], people=PEOPLE)


@dataclass
class Model:
    policy: str
    approved: list[float] = field(default_factory=list)
    """The euros of each accepted approval, the latest last."""
    ended: str = ""
    """The end before use: `denied`, `withdrawn`, `expired`, or "" while the call is open."""
    handed: list[tuple[str, Any, str]] = field(default_factory=list)
    """Each release of the arguments: attempt, arguments and key."""
    reported: str = ""
    steps: list[str] = field(default_factory=list)

    def take_permit(self, attempt: str, answer: Mapping[str, Any]) -> None:
        given = (attempt, answer["args"], answer["key"])
        assert not self.ended, self.steps
        if self.handed:
            # The same attempt again gets the same permit.
            assert given == self.handed[0], self.steps
            self.handed.append(given)
            return
        assert self.policy != "deny", self.steps
        assert self.approved or self.policy == "auto", self.steps
        wanted = {self.approved[-1]} if self.approved else {_EURO}
        assert answer["args"]["euro"] in wanted, self.steps
        self.handed.append(given)


@dataclass
class Story:
    agent: CallRig
    dice: random.Random
    order: str
    model: Model
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    call: str = ""

    @property
    def turn(self) -> TurnKey:
        return TurnKey(*self.call.split("."))

    async def play(self) -> None:
        acts: list[Callable[[], Awaitable[None]]] = [
            self.propose, self.propose_other, self.use, self.use, self.use, self.report, self.report, self.withdraw,
            self.decide, self.decide, self.decide, self.change_policy, self.change_policy, self.expire,
        ]  # fmt: skip
        await self.propose()
        for _ in range(STEPS):
            await self.dice.choice(acts)()
            await self.settle()

    async def propose(self) -> None:
        use = self.dice.choice((False, uuid.uuid4().hex, "first-try", "other-try"))
        answer = (await _insist(lambda: self.agent.propose(key=self.key, **self._body(_EURO), use=use))).json()
        self._note("propose", use, answer)
        self.call = answer["id"]
        if "args" in answer and answer["state"] == "used":
            self.model.take_permit(str(use), answer)
        await self.settle()

    async def propose_other(self) -> None:
        answer = await self.agent.propose(key=self.key, **self._body(_EURO + 1), use=True)
        self._note("propose other", answer.json())
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), self.model.steps

    async def use(self) -> None:
        attempt = self.dice.choice(("first-try", "other-try", uuid.uuid4().hex))
        answer = await _insist(lambda: self.agent.use(self.call, attempt))
        self._note("use", attempt, answer.json())
        assert answer.status_code in (200, 409), answer.text
        if answer.status_code == 200:
            self.model.take_permit(attempt, answer.json())

    async def report(self) -> None:
        code = self.dice.choice(("ok", "execution_failed"))
        answer = await _insist(lambda: self.agent.report(self.call, code))
        self._note("report", code, answer.json())
        if not self.model.handed:
            assert (answer.status_code, answer.json()["code"]) == (409, "not_used"), self.model.steps
        elif self.model.reported in ("", code):
            assert (answer.status_code, answer.json()["code"]) == (200, code), self.model.steps
            self.model.reported = code
        else:
            assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), self.model.steps

    async def withdraw(self) -> None:
        answer = await _insist(lambda: self.agent.withdraw(self.call))
        self._note("withdraw", answer.json())
        if self.model.handed and not self.model.reported:
            assert (answer.status_code, answer.json()["code"]) == (409, "used"), self.model.steps
        elif not self.model.handed:
            self.model.ended = self.model.ended or "withdrawn"
            while (await self.settle())["state"] != "denied":
                self._note("is not withdrawn yet")

    async def decide(self) -> None:
        if (await self.agent.show(self.call)).get("code") is None or self.model.ended or self.model.handed:
            return
        choice = self.dice.choice(("approved", "edited", "denied"))
        fields: dict[str, Any] = {"verdict": "denied", "reason": "no"} if choice == "denied" else {}
        if choice == "edited":
            fields = {"edited_args": {"order": self.order, "euro": _EDITED}}
        answer = (await self.agent.decide(self.call, **fields)).json()
        self._note("decide", choice, answer)
        if answer["status"] == "accepted" and choice == "denied":
            self.model.ended = "denied"
        elif answer["status"] == "accepted":
            before = self.model.approved[-1] if self.model.approved else _EURO
            self.model.approved.append(_EDITED if choice == "edited" else before)

    async def change_policy(self) -> None:
        self.model.policy = _SAYS[self.order] = self.dice.choice(("auto", "ask", "deny"))
        self._note("policy", self.model.policy)

    async def expire(self) -> None:
        if self.model.handed or self.model.ended or self.dice.random() < 0.5:
            return
        await self.agent.rig.turns.forward(self.turn, seconds=_GRANT_SECONDS + _TIMEOUT_SECONDS + 1)
        self._note("expire")
        ended = await self.settle()
        while ended["state"] != "denied":
            ended = await self.settle()
        self.model.ended = "expired"

    async def settle(self) -> dict[str, Any]:
        found = await self.agent.show(self.call)
        while found["state"] == "running" or (found["state"] == "waiting" and "code" not in found):
            found = await self.agent.show(self.call)
        if found["state"] == "denied" and not self.model.handed:
            self.model.ended = self.model.ended or "denied"
        return found

    async def check_end(self) -> None:
        found, kinds = await self.settle(), [kind for kind, _ in await self.agent.record(self.call)]
        told = (found["state"], found.get("code") if found["state"] == "ended" else None)
        self._note("end", told)
        assert kinds.count("execution") == (1 if self.model.handed else 0), self.model.steps
        if self.model.handed:
            reported = self.model.reported
            assert told == (("ended", reported) if reported else ("used", None)), self.model.steps
            assert len({key for _, _, key in self.model.handed}) == 1
        else:
            assert found["state"] in ("denied", "waiting", "permitted"), self.model.steps

    def _body(self, euro: float) -> dict[str, Any]:
        return {"args": {"order": self.order, "euro": euro}}

    def _note(self, *what: Any) -> None:
        self.model.steps.append(" ".join(str(each) for each in what)[:300])


async def _insist(act: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
    while (answer := await act()).status_code == 503:
        await asyncio.sleep(0.1)
    return answer


async def test_random_verb_sequences_never_release_a_forbidden_call(
    client: Client, store: Store, task_queue: str
) -> None:
    async with gateway_rig(client, store, task_queue, catalog_of_ledger=changing_catalog) as rig:
        agent, stories = CallRig(rig), []
        for number in range(CALLS):
            dice = random.Random(number)
            order = f"A{number}"
            _SAYS[order] = dice.choice(("auto", "auto", "ask"))
            stories.append(Story(agent, dice, order, Model(_SAYS[order])))
        await asyncio.gather(*(each.play() for each in stories))
        used = sum(bool(each.model.handed) for each in stories)
        ends = {each.model.ended for each in stories}
        await agent.http.post("/v1/freezes", json={"reason": "incident"})
        for each in stories:
            if not each.model.handed:
                assert (await agent.use(each.call)).status_code == 409, each.model.steps
        await asyncio.gather(*(each.check_end() for each in stories))
    # The sequences are fixed and reach every kind of end.
    assert used >= 3
    assert ends >= {"", "denied", "withdrawn", "expired"}, ends
