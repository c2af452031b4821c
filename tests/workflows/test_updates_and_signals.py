"""Each story is drawn from a seed. Every event goes to a real turn and to a book of `approvals/`, in the same
order, and both must agree. The calls that ran are then checked a third time against the sent decisions.

An answer that the rules accept is stored before it is sent, like the gateway's; other signed answers are not stored.
Time is not skipped because the store's clock decides: reminders, escalations and deadlines are left to
`test_escalation.py` and `security/test_deadline_orders.py`.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from signed_askers import signed_asker
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
from signoff.approvals.approval_book import ApprovalBook
from signoff.approvals.card_notes import editor_note
from signoff.approvals.digest import question_hash
from signoff.approvals.request_state import request_of
from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import TURNS_KEYS, AuditLog
from signoff.audit.verifier import verify
from signoff.contracts import names
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.engine.workflow_runs import execute_update
from signoff.formats.replace import replace
from signoff.keys.key_files import FileVerifier, create_key, read_private, retire_key
from signoff.keys.signatures import PrivateKey, PrivateKeys, Signer, new_key
from signoff.people.directory import FixedDirectory
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
SEEDS = range(80, 100)
STRANGER = Signer(PrivateKeys(keys=(new_key(datetime(2026, 1, 1, tzinfo=UTC)),)))
Facts = tuple[Any, ...]


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
    kept: bool = False


@dataclass(repr=False)
class Story:
    seed: int
    turns: RunningTurns
    keys: Keys
    chance: Random = field(init=False)
    model: ApprovalBook = field(default_factory=ApprovalBook)
    sent: list[Sent] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    async def begin(self) -> None:
        self.chance = Random(self.seed)
        self.mine = [create_key(*self.keys.files, datetime.now(UTC))]
        turn = f"t{uuid.uuid4().hex[:12]}"
        asker = signed_asker(self.keys.signer(self.mine[0]), GUEST, "main", turn, turn, at=datetime.now(UTC))
        tool = self.chance.choice(sorted(POLICIES))
        self.key: TurnKey = await self.turns.start(tool, session_id=turn, turn_id=turn, principal=asker)
        await self.turns.waiting(self.key)
        # Take the whole request from the store: a turn keeps only the parts it needs.
        opened = request_of(await self.turns.question(self.key))
        assert opened.opened_at is not None
        self.id, self.first, self.began = opened.id, opened, time.monotonic()
        self.opened: datetime = opened.opened_at
        self.model.open(opened, self.opened)

    @property
    def now(self) -> datetime:
        return self.opened + timedelta(seconds=time.monotonic() - self.began)

    @property
    def request(self) -> ApprovalRequest:
        found = self.model.get(self.id)
        assert found is not None
        return found

    @property
    def over(self) -> bool:
        return self.request.state != "pending"

    async def step(self) -> None:
        kind = self.chance.choices(
            ("answer", "edit", "rotate", "retire", "repeat", "storm", "withdraw", "stop"), (10, 2, 2, 2, 2, 2, 0.4, 0.2)
        )[0]
        self.steps.append(kind)
        match kind:
            case "answer" | "edit" | "storm":
                await self.answer(edit=kind == "edit", times=3 if kind == "storm" else 1)
            case "repeat" if self.sent:
                await self.send(self.chance.choice(self.sent), 1)
            case "rotate":
                self.mine.append(create_key(*self.keys.files, self.now))
            case "retire" if len(self.mine) > 1:
                retire_key(*self.keys.files, self.chance.choice(self.mine[:-1]).id, self.now)
            case "withdraw":
                wish = withdrawn(self.key, subject="")
                assert summary(await self.turns.signoff.withdraw(wish)) == summary(
                    self.model.cancel(self.id, "", wish.reason, self.now)
                )
            case "stop":
                await self.stop()

    async def answer(self, *, edit: bool, times: int) -> None:
        chance, request = self.chance, self.request
        fields: dict[str, Any] = {
            "subject": chance.choice((*APPROVERS * 3, "cfo", "cfo", "guest", "eve")),
            "verdict": chance.choice(("approved",) * 6 + ("denied",)),
            "revision": request.revision + chance.choice((0,) * 9 + (1, -1)),
            "question_hash": request.question_hash,
            "received_at": self.now + chance.choice((timedelta(),) * 8 + (-HOUR / 2, HOUR * 40)),
        }
        if edit:
            fields |= {"edited_args": {"amount": chance.choice(AMOUNTS), "to": "Ana"}}
        elif chance.random() < 0.1:
            fields["question_hash"] = "0" * 64
        await self.send(self.signed(yes(self.key, **fields)), times)

    def signed(self, decision: Decision) -> Sent:
        how = self.chance.choices(("new", "old", "unknown", "none", "altered"), (12, 3, 1, 1, 1))[0]
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

    def found(self, sent: Sent) -> Authority:
        decision = sent.decision
        may = decision.subject in APPROVERS
        return Authority(
            allowed=may,
            code="" if may else "not_allowed",
            subject=decision.subject,
            assurance=decision.assurance,
            received_at=decision.received_at,
        )

    def authority(self, sent: Sent) -> Authority:
        """The turn counts only stored answers."""
        if sent.kept:
            return self.found(sent)
        if sent.holds:
            return Authority(allowed=False, code="assurance", subject=sent.decision.subject)
        return Authority(allowed=False, code="assurance", unsigned=not sent.decision.signature)

    async def keep(self, sent: Sent) -> None:
        if not sent.holds or sent.kept:
            return
        who = self.found(sent)
        if machine.examine(self.request, sent.decision, who, self.now) is None:
            await answer(self.turns.store, sent.decision, authority=who)
            sent.kept = True

    def expected(self, sent: Sent) -> Receipt:
        decision, now = sent.decision, self.now
        receipt = self.model.precheck(decision, now)
        if receipt is not None:
            return receipt
        who = self.authority(sent)
        if decision.edited_args is None:
            return self.model.settle(decision, who, now)
        receipt = self.model.examine(decision, who, now)
        if receipt is not None:
            return receipt
        digest = binding.digest_with(self.request)(decision.edited_args)
        asked = replace(
            self.first,
            revision=self.request.revision + 1,
            edit_of=self.request.revision,
            edit_delivery=decision.delivery_id,
            digest=digest,
            args=Content(inline=decision.edited_args),
            notes=(editor_note(decision.subject),),
        )
        return self.model.settle(decision, who, now, replace(asked, question_hash=question_hash(asked)))

    async def send(self, sent: Sent, times: int) -> None:
        self.sent.append(sent)
        await self.keep(sent)
        before = (self.model.refused, facts(self.request))
        expected = [summary(self.expected(sent)) for _ in range(times)]
        seen = (self.model.refused, facts(self.request))
        # An answer without a visible effect goes by Update, which returns a receipt.
        by_signal = [times > 1 or (seen != before and self.chance.random() < 0.5), *(False for _ in range(times - 1))]
        receipts = await asyncio.gather(*(self.deliver(sent.decision, signal) for signal in by_signal))
        await self.agree()
        assert [each for each in receipts if each is not None and summary(each) not in expected] == [], self
        if times == 1 and receipts[0] is not None:
            assert summary(receipts[0]) == expected[0], self

    async def deliver(self, decision: Decision, signal: bool) -> Receipt | None:
        handle = self.turns.client.get_workflow_handle(self.key.workflow_id)
        body = decision.model_dump(mode="json", exclude_none=True)
        if signal:
            await handle.signal(names.APPROVAL_RESPONSE, body)
            return None
        receipt: Receipt = await execute_update(handle, names.DECIDE, body, result_type=Receipt)
        return receipt

    async def stop(self) -> None:
        await self.turns.signoff.cancel_turn(self.key)
        self.model.cancel(self.id, "", "The turn was cancelled.", self.now)

    async def agree(self) -> None:
        want = (self.model.refused, facts(self.request))
        deadline = time.monotonic() + 30
        while True:
            view = await self.turns.signoff.view(self.key)
            have = (view.refusals, facts(view.calls[0].approval))
            if have == want:
                return
            assert time.monotonic() < deadline, f"{self}\nturn:  {have}\nmodel: {want}"
            await asyncio.sleep(0.05)

    async def end(self, ledger: Ledger) -> str:
        if not self.over:
            await self.stop()
        result = await self.turns.signoff.result(self.key)
        request = self.request
        approved = request.state == "approved"
        assert [outcome.code == "ok" for outcome in result.calls] == [approved], self
        rows = [row for row in ledger.rows if row[2] == request.digest]
        assert len(rows) == approved, self
        if approved:
            assert [row[:2] for row in rows] == [(request.tool, request.args.inline)], self
            assert len(self.entitled()) >= request.quorum, self
        # Entries known only to the turn are recorded in the turn's name.
        tried = {
            f"{TURNS_KEYS}{entry.key}" for entry in self.model.unwritten.take() if entry.kind in ("attempt", "ending")
        }
        written = [
            record
            for record in await AuditLog(self.turns.store).stream(self.key.workflow_id)
            if record.kind in ("attempt", "ending", "execution")
        ]
        assert {record.key for record in written if record.kind != "execution"} == tried, self
        assert sum(record.kind == "execution" for record in written) == approved, self
        return request.state

    def entitled(self) -> set[str]:
        """Judged by the sent decisions alone: signed, in time, about exactly these arguments."""
        request = self.request
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
        return f"seed {self.seed}, {self.first.tool}: {' '.join(self.steps)}"


def summary(receipt: Receipt) -> Facts:
    return receipt.status, receipt.code, receipt.state, receipt.verdict, receipt.decided_by, receipt.votes


def facts(request: ApprovalRequest | None) -> Facts:
    assert request is not None
    votes = tuple((vote.subject, vote.verdict) for vote in request.votes)
    return request.state, request.revision, request.question_hash, request.digest, request.decided_by, votes


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
    for _ in range(story.chance.randint(4, 10)):
        if not story.over:
            await story.step()
    return await story.end(ledger)


async def test_updates_and_signals_match_the_pure_rules(turn_rig: TurnRig, tmp_path: Path) -> None:
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
    assert any(story.request.revision > 1 and story.request.state == "approved" for story in stories)
