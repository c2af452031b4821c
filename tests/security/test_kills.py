"""Gateway, worker and server are each killed once, while six turns are at six steps between a question and the end of
its tool.
"""

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from killable_stack import TOOLS, killable, lines, make_keys, seen, store_url
from raw_turns import RawTurnClient
from turn_fixtures import PATIENCE

from signoff.approvals.digest import question_hash
from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.audit.verifier import VerificationReport, verify
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.turn import TurnResult
from signoff.keys.key_files import FileVerifier
from signoff.store.questions.questions import Questions
from signoff.store.store import Store, open_store
from signoff.store.tokens import SCOPES, Tokens
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, start_server
from signoff.temporal.encryption import Encryption
from signoff.temporal.server_connection import connect

Victim = Literal["worker", "gateway", "server"]
VICTIMS: tuple[Victim, ...] = ("worker", "gateway", "server")
_PAUSE = 0.1
pytestmark = pytest.mark.timeout(300)


@dataclass
class Story:
    results: dict[str, TurnResult] = field(default_factory=dict)
    receipts: dict[str, str] = field(default_factory=dict)
    records: dict[str, list[Record]] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    proposed: Counter[str] = field(default_factory=Counter)
    questions: Counter[str] = field(default_factory=Counter)
    report: VerificationReport | None = None


@dataclass
class Stack:
    folder: Path
    queue: str
    port: int
    options: ServerOptions
    store: Store
    tokens: dict[str, str]
    running: contextlib.AsyncExitStack
    processes: dict[str, asyncio.subprocess.Process | ServerHandle] = field(default_factory=dict)

    async def begin(self, role: str) -> None:
        if role == "server":
            server = await start_server(self.options)
            self.running.push_async_callback(server.stop)
            self.processes[role] = server
        else:
            process = killable(role, self.options.address, self.folder, self.queue, self.port)
            self.processes[role] = await self.running.enter_async_context(process)

    async def kill(self, role: str) -> None:
        process = self.processes.pop(role)
        if isinstance(process, ServerHandle):
            await process.kill()
        else:
            process.kill()
            await process.wait()

    async def send(self, person: str, url: str, headers: dict[str, str] | None = None, **body: Any) -> httpx2.Response:
        """Raises httpx2's error without a gateway."""
        given = {"authorization": f"Bearer {self.tokens[person]}", **(headers or {})}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as http:
            return await http.post(url, json=body, headers=given)

    async def start(self, tool: str) -> TurnKey:
        answer = await self.send("guest", "/v1/turns", text=tool, actor="desk")
        assert answer.status_code == 201, answer.text
        return TurnKey(*(answer.json()[part] for part in ("tenant", "session", "turn")))

    async def answer(self, key: TurnKey, delivery: str, **body: Any) -> str:
        approval_id = ApprovalKey(key, "c1.1").id
        url = f"/v1/approvals/{approval_id}/decide"
        asked = await Questions(self.store).read(approval_id)
        assert asked is not None
        about = {"revision": asked.latest.revision, "question_hash": question_hash(asked.latest)}
        sent = {"verdict": "approved", **about, **body}
        try:
            answer = await self.send("ana", url, {"idempotency-key": delivery}, **sent)
        except httpx2.TransportError as error:
            return type(error).__name__
        return str(answer.json().get("status", answer.status_code))

    async def insist(self, key: TurnKey, delivery: str, **body: Any) -> str:
        while (status := await self.answer(key, delivery, **body)) not in ("accepted", "pending"):
            await asyncio.sleep(_PAUSE)
        return status


async def asks(signoff: RawTurnClient, key: TurnKey, kind: str = "approval") -> ApprovalRequest:
    while True:
        with contextlib.suppress(ServerUnavailable, NotFound):
            view = await signoff.view(key)
            for call in view.calls:
                if call.approval is not None and (call.approval.kind, call.approval.state) == (kind, "pending"):
                    return call.approval
            assert view.result is None, view.result
        await asyncio.sleep(_PAUSE)


async def kill_in_the_middle(stack: Stack, victim: Victim, encryption: Encryption) -> Story:
    story = Story()
    await stack.begin("server")
    await asyncio.gather(stack.begin("worker"), stack.begin("gateway"))
    signoff = RawTurnClient(
        await connect(stack.options.address, encryption=encryption), task_queue=stack.queue, patience=PATIENCE
    )
    turns = dict(zip(TOOLS, await asyncio.gather(*(stack.start(tool) for tool in TOOLS)), strict=True))
    await seen(stack.folder / "judged")
    await asyncio.gather(*(asks(signoff, key) for tool, key in turns.items() if tool != "judged"))
    for tool in ("undispatched", "inside", "after", "judged"):
        story.receipts[tool] = await stack.answer(turns[tool], tool)
    await seen(stack.folder / "inside")
    await seen(stack.folder / "after")

    on_its_way = asyncio.create_task(stack.answer(turns["during"], "during"))
    await asyncio.sleep(0.02)
    await stack.kill(victim)
    story.receipts["during"] = await on_its_way
    (stack.folder / "go").touch()
    await stack.begin(victim)

    story.receipts["before"] = await stack.insist(turns["before"], "before")
    if story.receipts["during"] not in ("accepted", "pending"):
        story.receipts["during"] = await stack.insist(turns["during"], "during")
    if victim == "worker":
        await asks(signoff, turns["inside"], "in_doubt")
        await stack.insist(turns["inside"], "doubt", verdict="happened", result="done")
    for tool, key in turns.items():
        story.results[tool] = await signoff.result(key)
        story.records[tool] = await AuditLog(stack.store).stream(key.workflow_id)
        asked = await Questions(stack.store).read(ApprovalKey(key, "c1.1").id)
        story.questions[tool] = 0 if asked is None else sum(each.kind == "approval" for each in asked.questions)
    story.effects = Counter(lines(stack.folder))
    story.proposed = Counter(lines(stack.folder, "asked"))
    points = Checkpoints(stack.store)
    verifier = FileVerifier(stack.folder / "public.json")
    story.report = await verify(AuditLog(stack.store).records(), points.all(), verifier, heads=await points.heads())
    return story


@contextlib.asynccontextmanager
async def stack_in(folder: Path) -> AsyncIterator[Stack]:
    make_keys(folder)
    options = ServerOptions(folder / "temporal.db", port=free_port(), ui_port=None)
    async with open_store(store_url(folder)) as store, contextlib.AsyncExitStack() as running:
        tokens = {}
        for person in ("guest", "ana"):
            hour, now = timedelta(hours=1), datetime.now(UTC)
            tokens[person], _ = await Tokens(store).create("main", person, SCOPES, lifetime=hour, now=now)
        queue = f"kills-{uuid.uuid4().hex[:8]}"
        yield Stack(folder, queue, free_port(), options, store, tokens, running)


@pytest.fixture(scope="module")
async def stories(encryption: Encryption, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Story]:
    """Run all three kills at once: most of their time is the wait for a lost worker's heartbeat."""

    async def story(victim: Victim) -> Story:
        async with stack_in(tmp_path_factory.mktemp(victim)) as stack:
            return await kill_in_the_middle(stack, victim, encryption)

    answers = await asyncio.gather(*(story(victim) for victim in VICTIMS))
    return dict(zip(VICTIMS, answers, strict=True))


@pytest.mark.parametrize("step", TOOLS)
@pytest.mark.parametrize("victim", VICTIMS)
async def test_kill_loses_no_answer_and_repeats_no_effect(victim: Victim, step: str, stories: dict[str, Story]) -> None:
    story = stories[victim]
    assert story.receipts[step] in ("accepted", "pending")
    assert story.effects[step] == 1
    result = story.results[step]
    assert (result.state, [outcome.code for outcome in result.calls]) == ("complete", ["ok"])
    assert result.calls[0].decided_by == "ana"
    records = story.records[step]
    assert sum(record.kind == "execution" for record in records) == 1
    # An answer handed to the turn again after the kill is recorded as a duplicate, and counted once.
    accepted = [
        record
        for record in records
        if record.kind == "attempt" and record.facts["status"] == "accepted" and not record.key.endswith("/duplicate")
    ]
    lost = victim == "worker" and step == "inside"
    assert [record.subject for record in accepted] == ["ana"] * (2 if lost else 1)
    endings = [record.facts["state"] for record in records if record.kind == "ending"]
    assert endings == ["approved", *["happened"] * lost]


@pytest.mark.parametrize("step", TOOLS)
@pytest.mark.parametrize("victim", VICTIMS)
async def test_kill_repeats_no_completion_and_no_question(victim: Victim, step: str, stories: dict[str, Story]) -> None:
    """The model's reply is kept and paid for once. Without `Completions.keep` the killed worker's successor asked the
    model again.
    """
    story = stories[victim]
    assert (story.proposed[step], story.questions[step]) == (1, 1)


@pytest.mark.parametrize("victim", VICTIMS)
async def test_audit_log_is_complete_after_a_kill(victim: Victim, stories: dict[str, Story]) -> None:
    report = stories[victim].report
    assert report is not None
    assert report.finding is None
    assert report.streams >= len(TOOLS)
