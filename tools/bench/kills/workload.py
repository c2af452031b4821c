"""The workload: a requester, two approvers and an external agent, whose calls a seed determines."""

import asyncio
import json
import random
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import httpx2

from tools.bench.kills.journal import (
    EFFECTS,
    Accepted,
    Answered,
    Answering,
    Effect,
    Ended,
    Journal,
    Proposed,
    Question,
    Reported,
    Used,
    Verdict,
    Withdrawn,
    read_entries,
)

APPROVERS: Final = ("ana", "bo")
_LOOK_SECONDS = 0.7
_RETRY_SECONDS = 0.3
_CALL_SECONDS = (0.3, 1.5)
"""The time between two calls."""
_WORK_SECONDS = 0.8
_AT_ONCE = 12
"""Calls under way: on a slow machine a queue without end would hide the calls that never end."""
_ASKED_FROM, _HIGHEST = 50, 900
_FINAL = ("complete", "error", "cancelled", "clarifying", "awaiting", "delegated", "passed")

Answers = Literal["approve", "deny", "race", "ignore"]
ToolName = Literal["pay", "transfer", "refund"]
_TOOLS: Final[tuple[ToolName, ...]] = ("pay", "transfer", "refund")
_TOOL_WEIGHTS: Final = (4, 1, 4)
_ANSWERS: Final[tuple[Answers, ...]] = ("approve", "deny", "race", "ignore")
_ANSWER_WEIGHTS: Final = (6, 2, 1, 1)


@dataclass(frozen=True)
class PlannedCall:
    """One call, and the way its people and its agent act."""

    name: str
    tool: ToolName
    amount: int
    before: float
    after: float
    answers: Answers
    pause: float
    """Seconds of reading the card."""
    rivals: int
    """The number of attempts that use the permit at the same time."""
    withdraws: bool
    reports: bool

    @property
    def by_rule(self) -> bool:
        return self.tool != "transfer" and self.amount < _ASKED_FROM

    @property
    def args(self) -> dict[str, Any]:
        return {"call": self.name, "amount": self.amount}

    def proposed(self) -> Proposed:
        return Proposed(
            call=self.name,
            way="external" if self.tool == "refund" else "turn",
            tool=self.tool,
            args=self.args,
            by_rule=self.by_rule,
            voters=2 if self.tool == "transfer" else 1,
        )


def plan_calls(seed: int) -> Iterator[tuple[float, PlannedCall]]:
    """Yield the seconds to wait before each call, without end. The same seed gives the same calls."""
    dice = random.Random(f"workload {seed}")
    number = 0
    while True:
        number += 1
        tool = dice.choices(_TOOLS, _TOOL_WEIGHTS)[0]
        by_rule = dice.random() < 0.3
        yield (
            dice.uniform(*_CALL_SECONDS),
            PlannedCall(
                name=f"k{seed}-{number}",
                tool=tool,
                amount=dice.randrange(1, _ASKED_FROM) if by_rule else dice.randrange(_ASKED_FROM, _HIGHEST),
                before=round(dice.uniform(0, _WORK_SECONDS), 2),
                after=round(dice.uniform(0, _WORK_SECONDS), 2),
                answers=dice.choices(_ANSWERS, _ANSWER_WEIGHTS)[0],
                pause=dice.uniform(0, 2),
                rivals=dice.choice((1, 2, 3)),
                withdraws=dice.random() < 0.1,
                reports=dice.random() < 0.9,
            ),
        )


class Workload:
    """Drives the calls over HTTP. Repeats each request unchanged until the gateway has answered it."""

    def __init__(self, address: str, tokens: dict[str, str], journal: Journal, folder: Path, seed: int) -> None:
        self._journal = journal
        self._folder = folder
        self._seed = seed
        self._plans: dict[str, PlannedCall] = {}
        self._approvals: dict[str, str] = {}
        """Maps the id of each request to the name of its call."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._stopped = False
        self._stack = AsyncExitStack()
        self._http = {
            who: httpx2.AsyncClient(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60)
            for who, token in tokens.items()
        }

    async def __aenter__(self) -> Self:
        for http in self._http.values():
            await self._stack.enter_async_context(http)
        for person in APPROVERS:
            self._spawn(self._approve(person))
        return self

    async def __aexit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()

    def stop(self) -> None:
        self._stopped = True

    async def run(self) -> None:
        """Return when every call has ended after `stop`, or at once if one has failed."""
        calls: list[asyncio.Task[None]] = []
        slots = asyncio.Semaphore(_AT_ONCE)
        for pause, plan in plan_calls(self._seed):
            await asyncio.sleep(pause)
            await slots.acquire()
            if self._stopped:
                break
            self._plans[plan.name] = plan
            self._journal.write(plan.proposed())
            call = asyncio.create_task(self._play_external(plan) if plan.tool == "refund" else self._play(plan))
            call.add_done_callback(lambda _: slots.release())
            calls.append(call)
        try:
            await asyncio.gather(*calls)
            if self._failure is not None:
                raise self._failure
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _play(self, plan: PlannedCall) -> None:
        args = plan.args | {"before": plan.before, "after": plan.after}
        body = {"turn": plan.name, "actor": "desk", "text": json.dumps({"tool": plan.tool, "args": args})}
        started = await self._send("rui", "POST", "/v1/turns", body)
        if started.status_code != httpx2.codes.CREATED:
            raise AssertionError(f"turn {plan.name}: {started.status_code} {started.text[:300]}")
        self._journal.write(Accepted(call=plan.name, id=started.json()["id"]))
        path = f"/v1/turns/{started.json()['id']}"
        while True:
            view = await self._send("rui", "GET", path)
            turn = view.json() if view.status_code == httpx2.codes.OK else {}
            if turn.get("state") in _FINAL:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        # A turn that failed before its call has none.
        codes = [call["state"] for call in turn["calls"]] or [f"no call: {turn['result']['error']}"]
        self._journal.write(Ended(call=plan.name, state=codes[0], questions=await self._questions(plan.name)))

    async def _play_external(self, plan: PlannedCall) -> None:
        """Several concurrent attempts use the permit."""
        body = {"tool": plan.tool, "args": plan.args, "says": "as agreed"}
        proposed = await self._send("coder", "POST", "/v1/calls", body, key=plan.name)
        if not proposed.is_success:
            raise AssertionError(f"call {plan.name}: {proposed.status_code} {proposed.text[:300]}")
        self._journal.write(Accepted(call=plan.name, id=proposed.json()["id"]))
        path = f"/v1/calls/{proposed.json()['id']}"
        if plan.withdraws:
            await asyncio.sleep(plan.pause)
            if (await self._send("coder", "DELETE", path)).is_success:
                self._journal.write(Withdrawn(call=plan.name))
        call = await self._until(path, ("waiting", "running"))
        if call["state"] == "permitted":
            tries = [self._use(plan, path, f"{plan.name}-try-{number}") for number in range(plan.rivals)]
            if any(await asyncio.gather(*tries)) and plan.reports:
                await asyncio.sleep(plan.after)
                report = await self._send("coder", "POST", f"{path}/outcome", {"code": "ok", "result": "refunded"})
                if report.is_success:
                    self._journal.write(Reported(call=plan.name, code="ok"))
        call = await self._until(path, ("waiting", "running", "permitted", "used"))
        self._journal.write(
            Ended(
                call=plan.name,
                state=call["state"],
                code=call.get("code", ""),
                questions=await self._questions(plan.name),
            )
        )

    async def _use(self, plan: PlannedCall, path: str, attempt: str) -> bool:
        answer = await self._send("coder", "POST", f"{path}/use", {}, key=attempt)
        if answer.is_success:
            self._journal.write(Used(call=plan.name, attempt=attempt, args=answer.json()["args"]))
        return answer.is_success

    async def _until(self, path: str, passing: tuple[str, ...]) -> dict[str, Any]:
        while True:
            answer = await self._send("coder", "GET", f"{path}?wait=5")
            call: dict[str, Any] = answer.json() if answer.is_success else {"state": passing[0]}
            if call["state"] not in passing:
                return call
            await asyncio.sleep(_LOOK_SECONDS)

    async def _approve(self, person: str) -> None:
        """Answer once per revision."""
        seen: set[tuple[str, int]] = set()
        while True:
            found = await self._send(person, "GET", "/v1/approvals?limit=500")
            for card in found.json()["approvals"] if found.is_success else []:
                name = (card["id"], card["revision"])
                if name not in seen:
                    seen.add(name)
                    self._spawn(self._answer(person, *name))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _answer(self, person: str, approval: str, revision: int) -> None:
        shown = await self._send(person, "GET", f"/v1/approvals/{approval}")
        if not shown.is_success or shown.json()["revision"] != revision:
            return
        request = shown.json()
        call = _named_call(request)
        self._approvals[approval] = call
        verdict = self._verdict(person, call, request["kind"])
        if verdict is None:
            return
        await asyncio.sleep(self._plans[call].pause)
        body = {"verdict": verdict, "revision": revision, "question_hash": request["question_hash"]}
        if verdict == "approved":
            body["seen"] = request["seen"]
        self._journal.write(
            Answering(
                call=call,
                approval=approval,
                revision=revision,
                question=request["kind"],
                person=person,
                verdict=verdict,
            )
        )
        answer = await self._send(
            person, "POST", f"/v1/approvals/{approval}/decide", body, key=f"{approval}/{revision}/{person}"
        )
        said = answer.json()
        self._journal.write(
            Answered(
                approval=approval,
                revision=revision,
                person=person,
                verdict=verdict,
                status=said.get("status", str(answer.status_code)),
                code=said.get("code", ""),
            )
        )

    def _verdict(self, person: str, call: str, question: str) -> Verdict | None:
        plan = self._plans[call]
        if question == "in_doubt":
            # Ana looks at the tool's effects, and answers truthfully.
            happened = any(isinstance(each, Effect) and each.call == call for each in read_entries(self._effects))
            again: Verdict = "denied" if plan.answers == "deny" else "approved"
            return None if person != APPROVERS[0] and plan.tool != "transfer" else "happened" if happened else again
        if plan.answers == "ignore":
            return None
        if plan.answers == "race":
            return "approved" if person == APPROVERS[0] else "denied"
        if plan.tool != "transfer" and person != APPROVERS[plan.amount % len(APPROVERS)]:
            return None
        return "approved" if plan.answers == "approve" else "denied"

    @property
    def _effects(self) -> Path:
        return self._folder / EFFECTS

    async def _questions(self, call: str) -> tuple[Question, ...]:
        found = []
        for approval, name in sorted(self._approvals.items()):
            if name != call:
                continue
            shown = await self._send(APPROVERS[0], "GET", f"/v1/approvals/{approval}")
            request = shown.json()
            found.append(
                Question(
                    approval=approval,
                    revision=request["revision"],
                    state=request["state"],
                    decided_by=request["decided_by"],
                    votes=tuple((vote["subject"], vote["verdict"]) for vote in request["votes"]),
                )
            )
        return tuple(found)

    async def _send(
        self, who: str, method: str, path: str, body: dict[str, Any] | None = None, key: str = ""
    ) -> httpx2.Response:
        """Repeat a request while the gateway answers with 503 or 429."""
        headers = {"content-type": "application/json"} | ({"idempotency-key": key} if key else {})
        while True:
            try:
                answer = await self._http[who].request(method, path, json=body, headers=headers)
            except httpx2.TransportError:
                pass
            else:
                if answer.status_code not in (429, 500, 502, 503, 504):
                    return answer
            await asyncio.sleep(_RETRY_SECONDS)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()


def _named_call(request: dict[str, Any]) -> str:
    """The card's sentence is `Pay 60 EUR for k7-3`."""
    return str(request["card"]["effect"]).rpartition(" for ")[2]
