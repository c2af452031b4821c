"""Each story is drawn from a seed. After each message, the turn must have the state of the store.

An accepted answer is stored before its turn hears of it. `test_escalation.py` and `security/test_deadline_orders.py`
cover reminders, escalations and deadlines.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from signed_askers import signed_asker
from some import some
from temporalio.client import Client
from turn_fixtures import (
    GUEST,
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    pay_tool,
    running_turns,
    withdrawn,
    yes,
)

from signoff.approvals import binding, machine
from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import TURNS_KEYS, AuditLog
from signoff.audit.verifier import verify
from signoff.contracts import names
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.engine.workflow_runs import execute_update
from signoff.formats.replace import replace
from signoff.keys.key_files import FileVerifier, create_key, read_private, retire_key
from signoff.keys.signatures import PrivateKey, PrivateKeys, Signer, new_key
from signoff.people.directory import FixedDirectory
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.builders import a_person
from signoff.testing.questions import answer
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

HOUR = timedelta(hours=1)
POLICIES = {
    "alone": ApprovalPolicy(edit="approve", timeout=36_000.0),
    "two": ApprovalPolicy(edit="approve", quorum=2, timeout=36_000.0),
    "majority": ApprovalPolicy(edit="approve", quorum=2, veto=False, timeout=36_000.0),
    "three": ApprovalPolicy(edit="off", quorum=3, timeout=36_000.0),
}
APPROVERS = ("ana", "ben", "cleo")
PEOPLE = (*(a_person(name) for name in APPROVERS), *(Person(id=name) for name in ("guest", "eve", "cfo")))
AMOUNTS = (20, 30, 40)
SEEDS = range(80, 110)
STRANGER = Signer(PrivateKeys(keys=(new_key(datetime(2026, 1, 1, tzinfo=UTC)),)))
Facts = tuple[Any, ...]
T = TypeVar("T")


@dataclass
class Keys:
    folder: Path

    @property
    def files(self) -> tuple[Path, Path]:
        return self.folder / "private.json", self.folder / "public.json"

    def signer(self, key: PrivateKey) -> Signer:
        return Signer(PrivateKeys(keys=(replace(key, retired_at=None),)))

    def retired_at(self, key: PrivateKey) -> datetime | None:
        return next(each.retired_at for each in read_private(self.files[0]).keys if each.id == key.id)


@dataclass
class Sent:
    decision: Decision
    how: str
    holds: bool
    number: int = 0
    """The number of the stored answer."""


@dataclass(repr=False)
class Story:
    seed: int
    turns: RunningTurns
    keys: Keys
    chance: Random = field(init=False)
    sent: list[Sent] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    async def begin(self) -> None:
        self.chance = Random(self.seed)
        self.mine = [create_key(*self.keys.files, datetime.now(UTC))]
        turn = f"t{uuid.uuid4().hex[:12]}"
        asker = signed_asker(self.keys.signer(self.mine[0]), GUEST, "main", turn, turn, at=datetime.now(UTC))
        self.tool = self.chance.choice(sorted(POLICIES))
        self.key: TurnKey = await self.turns.start(self.tool, session_id=turn, turn_id=turn, principal=asker)
        await self.turns.waiting(self.key)
        self.id = ApprovalKey(self.key, "c1.1").id
        self.turn_ended = ""

    async def request(self) -> ApprovalRequest:
        return await self.turns.signoff.request(self.id)

    async def view(self) -> ApprovalRequest:
        return some((await reached(lambda: self.turns.signoff.view(self.key))).calls[0].approval)

    async def step(self) -> bool:
        """Return whether the request still waits."""
        kind = self.chance.choices(
            ("answer", "edit", "rotate", "retire", "repeat", "storm", "bogus", "withdraw", "stop"),
            (10, 2, 4, 4, 2, 2, 2, 0.4, 0.2),
        )[0]
        self.steps.append(kind)
        match kind:
            case "answer" | "edit" | "storm":
                await self.answer(edit=kind == "edit", times=3 if kind == "storm" else 1)
            case "repeat" if self.sent:
                await self.send(self.chance.choice(self.sent), 1)
            case "rotate":
                self.mine.append(create_key(*self.keys.files, datetime.now(UTC)))
            case "retire" if len(self.mine) > 1:
                retire_key(*self.keys.files, self.chance.choice(self.mine[:-1]).id, datetime.now(UTC))
            case "bogus":
                await self.wake_for_nothing()
            case "withdraw":
                receipt = await reached(lambda: self.turns.signoff.withdraw(withdrawn(self.key, subject="")))
                assert receipt.status == "accepted", self
                self.turn_ended = "cancelled"
            case "stop":
                await self.stop()
        return not self.turn_ended and (await self.request()).state == "pending"

    async def answer(self, *, edit: bool, times: int) -> None:
        chance, request, now = self.chance, await self.request(), datetime.now(UTC)
        fields: dict[str, Any] = {
            "subject": chance.choice((*APPROVERS * 3, "cfo", "cfo", "guest", "eve")),
            "verdict": chance.choice(("approved",) * 4 + ("denied",)),
            "revision": request.revision + chance.choice((0,) * 9 + (1, -1)),
            "question_hash": request.question_hash,
            "received_at": now + chance.choice((timedelta(),) * 8 + (-HOUR / 2, HOUR * 40)),
        }
        if edit:
            fields |= {"edited_args": {"amount": chance.choice(AMOUNTS), "to": "Ana"}}
        elif chance.random() < 0.1:
            fields["question_hash"] = "0" * 64
        sent = self.signed(yes(self.key, **fields))
        await self.keep(sent, request)
        await self.send(sent, times)

    def signed(self, decision: Decision) -> Sent:
        how = self.chance.choices(("new", "old", "unknown", "none", "altered"), (11, 5, 1, 1, 1))[0]
        if how == "none":
            return Sent(decision, how, holds=False)
        if how == "unknown":
            return Sent(STRANGER.sign_decision(decision), how, holds=False)
        key = self.chance.choice(self.mine) if how == "old" else self.mine[-1]
        signed = self.keys.signer(key).sign_decision(decision)
        if how == "altered":
            return Sent(replace(signed, subject="ana", reason="somebody else's words"), how, holds=False)
        retired = self.keys.retired_at(key)
        assert decision.received_at is not None
        return Sent(signed, how, holds=retired is None or decision.received_at < retired)

    async def keep(self, sent: Sent, request: ApprovalRequest) -> None:
        """Store the answer if the rules accept it, as the gateway does."""
        decision = sent.decision
        may = decision.subject in APPROVERS
        code = "" if may else "not_allowed"
        who = Authority(
            allowed=may,
            code=code,
            subject=decision.subject,
            assurance=decision.assurance,
            received_at=decision.received_at,
        )
        if sent.holds and machine.examine(request, decision, who, datetime.now(UTC)) is None:
            await answer(self.turns.store, decision, authority=who)
            rows = some(await Questions(self.turns.store).read(self.id))
            sent.number = rows.answers[-1].number

    async def send(self, sent: Sent, times: int) -> None:
        self.sent.append(sent)
        request = await self.view()
        codes = self.codes(sent, request)
        by_signal = [times > 1 or self.chance.random() < 0.3, *(False for _ in range(times - 1))]
        receipts = await asyncio.gather(*(self.deliver(sent, signal) for signal in by_signal))
        await self.agree()
        assert [each for each in receipts if each is not None and each.code not in codes] == [], self

    def codes(self, sent: Sent, request: ApprovalRequest) -> set[str]:
        """Return the codes that the turn may give for an answer. Empty for an accepted one."""
        decision = sent.decision
        if sent.number:
            # A wake. After an edit, an earlier revision's answers that the turn has read stay accepted.
            return {""} | ({"stale"} if decision.revision != request.revision else set())
        named = decision.question_hash == request.question_hash and (decision.revision or 1) == request.revision
        code = "assurance" if named else "stale"
        self.refused.add(f"attempt/{decision.delivery_id}/c1.1/{decision.revision or 1}/refused/{code}")
        return {code}

    async def deliver(self, sent: Sent, signal: bool) -> Receipt | None:
        handle = self.turns.client.get_workflow_handle(self.key.workflow_id)
        wake = {"approval_id": self.id, "revision": sent.decision.revision or 1, "number": sent.number}
        body = wake if sent.number else sent.decision.model_dump(mode="json", exclude_none=True)
        if signal:
            await handle.signal(names.APPROVAL_RESPONSE, body)
            return None
        receipt: Receipt = await reached(lambda: execute_update(handle, names.DECIDE, body, result_type=Receipt))
        return receipt

    async def wake_for_nothing(self) -> None:
        revision, handle = (await self.request()).revision, self.turns.client.get_workflow_handle(self.key.workflow_id)
        hint = {"approval_id": self.id, "revision": revision + self.chance.choice((0, 1)), "number": 900}
        receipt: Receipt = await execute_update(handle, names.DECIDE, hint, result_type=Receipt)
        assert (receipt.status, receipt.code in ("stale", "unavailable")) == ("refused", True), self
        await self.agree()

    async def stop(self) -> None:
        await reached(lambda: self.turns.signoff.cancel_turn(self.key))
        self.turn_ended = "cancelled"

    async def agree(self) -> None:
        """Wait until the turn has the store's state."""
        deadline = time.monotonic() + 30
        while True:
            have, want = facts(await self.view()), facts(await self.request())
            if have == want:
                return
            assert time.monotonic() < deadline, f"{self}\nturn:  {have}\nstore: {want}"
            await asyncio.sleep(0.05)

    async def end(self, ledger: Ledger) -> str:
        if not self.turn_ended and (await self.request()).state == "pending":
            await self.stop()
        result = await self.turns.signoff.result(self.key)
        request = await self.request()
        approved = request.state == "approved"
        assert [outcome.code == "ok" for outcome in result.calls] == [approved], self
        rows = [row for row in ledger.rows if row[2] == request.digest]
        assert len(rows) == approved, self
        if approved:
            assert [row[:2] for row in rows] == [(request.tool, request.args.inline)], self
            assert len(self.entitled(request)) >= request.quorum, self
        # Entries known only to the turn are recorded in the turn's name.
        written = await AuditLog(self.turns.store).stream(self.key.workflow_id)
        attempts = {each.key.removeprefix(TURNS_KEYS) for each in written if each.kind == "attempt"}
        assert attempts == self.refused, self
        endings = [each.key.rpartition("/")[2] for each in written if each.kind == "ending"]
        assert endings == [request.state], self
        assert sum(record.kind == "execution" for record in written) == approved, self
        return request.state

    def entitled(self, request: ApprovalRequest) -> set[str]:
        """Judged by the sent decisions alone: signed, in time, about exactly these arguments."""
        return {
            sent.decision.subject
            for sent in self.sent
            if sent.holds
            and sent.decision.verdict == "approved"
            and sent.decision.received_at is not None
            and request.expires_at is not None
            and sent.decision.received_at <= request.expires_at
            and sent.decision.subject in APPROVERS
            and binding.is_answer_to(sent.decision, request, request.question_hash)
        }

    def __repr__(self) -> str:
        return f"seed {self.seed}, {self.tool}: {' '.join(self.steps)}"


async def reached(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call while a busy server seems absent."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return await call()
        except ServerUnavailable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.5)


def facts(request: ApprovalRequest) -> Facts:
    return request.state, request.revision, request.question_hash, request.digest, request.decided_by


def react(request: CompletionRequest) -> Completion:
    return respond("done") if results(request) else calls((last_user_text(request), {"amount": 20, "to": "Ana"}))


@asynccontextmanager
async def production(
    client: Client, store: Store, queue: str, ledger: Ledger, keys: Keys
) -> AsyncIterator[RunningTurns]:
    catalog = catalog_of([pay_tool(ledger, policy, name=name) for name, policy in POLICIES.items()])
    create_key(*keys.files, datetime.now(UTC))
    async with running_turns(
        client,
        store,
        queue,
        catalog,
        ScriptedModel(react),
        people=FixedDirectory(PEOPLE),
        profile="production",
        verifier=FileVerifier(keys.files[1]),
    ) as turns:
        yield turns


async def lived(story: Story, ledger: Ledger) -> str:
    await story.begin()
    try:
        for _ in range(story.chance.randint(4, 10)):
            if not await story.step():
                break
        return await story.end(ledger)
    except Exception as error:
        raise AssertionError(repr(story)) from error


async def test_turn_has_the_state_of_the_store_after_each_message(turn_rig: TurnRig, tmp_path: Path) -> None:
    ledger, keys = Ledger(), Keys(tmp_path)
    async with production(turn_rig.client, turn_rig.store, turn_rig.task_queue, ledger, keys) as turns:
        stories = [Story(seed, turns, keys) for seed in SEEDS]
        endings = await asyncio.gather(*(lived(story, ledger) for story in stories))
    points = Checkpoints(turn_rig.store)
    await points.take(Signer(read_private(keys.files[0])))
    report = await verify(
        AuditLog(turn_rig.store).records(), points.all(), FileVerifier(keys.files[1]), heads=await points.heads()
    )
    assert report.finding is None
    assert report.streams == len(stories)
    assert len(ledger.rows) == endings.count("approved")
    # These seeds cover every end state of a request and every kind of key.
    assert set(endings) == {"approved", "denied", "cancelled"}
    assert {(sent.how, sent.holds) for story in stories for sent in story.sent} == {
        ("new", True), ("old", True), ("old", False), ("unknown", False), ("none", False), ("altered", False),
    }  # fmt: skip
    requests = [await story.request() for story in stories]
    assert any(each.revision > 1 and each.state == "approved" for each in requests)
