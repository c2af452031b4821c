import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agentack.engine import evaluate_events
from agentack.models import EvaluationReport
from agentack.parser import read_jsonl
from agentack.policy import Policy
from gateway_rig import FLIGHT, GatewayRig, gateway_rig
from temporalio.client import Client
from temporalio.testing import TimeSkipper
from turn_fixtures import Ledger, catalog_of, no, pay_tool, running_turns, yes

from signoff.audit.agentack_export import trace
from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts.decision import GrantRequest
from signoff.contracts.errors import Refused
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.tool_context import ToolContext
from signoff.store.store import open_store
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

ALWAYS = ("pay:*", "both:*", "trip:*", "book:*")
"""The tools without an approving rule, which agentack expects to need an approval."""
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
async def rig(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayRig]:
    folder = tmp_path_factory.mktemp("agentack")
    queue = f"agentack-{uuid.uuid4().hex[:12]}"
    async with open_store(f"sqlite:///{folder}/signoff.db") as store, gateway_rig(client, store, queue) as found:
        yield found


async def checked(lines: list[str], folder: Path, needing: tuple[str, ...] = ALWAYS) -> EvaluationReport:
    file = folder / "trace.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return evaluate_events(read_jsonl(file), policy=Policy(require_approval_for=needing, max_approval_age_seconds=1))


async def ended(rig: GatewayRig, key: TurnKey) -> list[Record]:
    await asyncio.wait_for(rig.turns.signoff.result(key), 60)
    return await AuditLog(rig.turns.store).stream(key.workflow_id)


async def asked(rig: GatewayRig, text: str) -> TurnKey:
    key = await rig.start(text)
    await rig.turns.waiting(key)
    return key


async def approved(rig: GatewayRig) -> TurnKey:
    key = await asked(rig, "pay")
    await rig.turns.signoff.decide(yes(key))
    return key


async def denied(rig: GatewayRig) -> TurnKey:
    key = await asked(rig, "pay")
    await rig.turns.signoff.decide(no(key))
    return key


async def some_of_each(rig: GatewayRig) -> TurnKey:
    key = await asked(rig, "pay book")
    await rig.turns.waiting(key, 2)
    await rig.turns.signoff.decide(no(key, "c1.1"))
    await rig.turns.signoff.decide(yes(key, "c1.2"))
    return key


async def by_two(rig: GatewayRig) -> TurnKey:
    key = await asked(rig, "both")
    for person in ("ana", "bo"):
        await rig.turns.signoff.decide(yes(key, subject=person))
    return key


async def timed_out(rig: GatewayRig) -> TurnKey:
    key = await asked(rig, "pay")
    handle = rig.turns.client.get_workflow_handle(key.workflow_id)
    await TimeSkipper(rig.turns.client).fast_forward(handle, timedelta(hours=25))
    return key


async def cancelled(rig: GatewayRig) -> TurnKey:
    key = await asked(rig, "pay")
    await rig.turns.signoff.cancel_turn(key)
    return key


async def edited(rig: GatewayRig) -> TurnKey:
    key = await asked(rig, "trip")
    await rig.turns.signoff.decide(yes(key, subject="ana", edited_args={**FLIGHT, "cost": 380.0}))
    await rig.turns.signoff.decide(yes(key, subject="bo", revision=2))
    return key


async def edited_by_both(rig: GatewayRig) -> TurnKey:
    key = await asked(rig, "trip")
    edits = [yes(key, subject=who, edited_args={**FLIGHT, "seats": n}) for n, who in enumerate(("ana", "bo"), 2)]
    receipts = await asyncio.gather(*(rig.turns.signoff.decide(edit) for edit in edits))
    other = "bo" if receipts[0].status == "counted" else "ana"
    await rig.turns.signoff.decide(yes(key, subject=other, revision=2))
    return key


async def doubted(rig: GatewayRig, **answer: Any) -> TurnKey:
    tries: list[str] = []

    async def pay(args: dict[str, Any], ctx: ToolContext) -> str:
        tries.append(ctx.idempotency_key)
        if len(tries) == 1:
            await asyncio.Event().wait()
        return "paid"

    client, store, queue = rig.turns.client, rig.turns.store, f"doubt-{uuid.uuid4().hex[:12]}"
    catalog = catalog_of([pay_tool(Ledger(), handler=pay, timeout=0.1)])
    script = [calls(("pay", {"amount": 420, "to": "Lisbon"})), respond("done")]
    async with running_turns(client, store, queue, catalog, script) as slow:
        key = await slow.start()
        await slow.waiting(key)
        await slow.signoff.decide(yes(key))
        await slow.waiting(key)
        await slow.signoff.decide(yes(key, revision=2, **answer))
        await slow.signoff.result(key)
    return key


async def in_doubt(rig: GatewayRig) -> TurnKey:
    return await doubted(rig)


async def happened(rig: GatewayRig) -> TurnKey:
    return await doubted(rig, verdict="happened", result="paid")


async def denied_in_the_end(rig: GatewayRig) -> TurnKey:
    client, store, queue = rig.turns.client, rig.turns.store, f"rule-{uuid.uuid4().hex[:12]}"
    script = [calls(("pay", {"amount": 420, "to": "Lisbon"})), respond("done")]
    async with running_turns(client, store, queue, catalog_of([pay_tool(Ledger())]), script) as before:
        key = await before.start()
        await before.suspended(key)
    tightened = catalog_of([pay_tool(Ledger(), ApprovalPolicy(deny_if="args.amount > 1.0"))])
    async with running_turns(client, store, queue, tightened, script) as after:
        await after.signoff.decide(yes(key))
        result = await after.signoff.result(key)
    assert [outcome.code for outcome in result.calls] == ["denied"]
    return key


async def by_rule(rig: GatewayRig) -> TurnKey:
    return await rig.start("small")


async def granted(rig: GatewayRig) -> TurnKey:
    first = await asked(rig, "alike")
    # As through the gateway, which alone stores grants and stamps the time of an answer.
    stamped = {"received_at": datetime.now(UTC)}
    decision = yes(first, remember=GrantRequest(scope="tenant", seconds=600, uses=1), **stamped)
    await answer(rig.turns.store, decision)
    await rig.turns.signoff.decide(decision)
    await ended(rig, first)
    return await rig.start("alike")


WAYS = (
    approved, denied, some_of_each, by_two, timed_out, cancelled, edited, edited_by_both, in_doubt, happened,
    denied_in_the_end, by_rule, granted,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_checker_passes_decided_turns(way: Callable[[GatewayRig], Any], rig: GatewayRig, tmp_path: Path) -> None:
    lines = trace(await ended(rig, await way(rig)))
    report = await checked(lines, tmp_path)
    assert (report.status, report.findings) == ("PASS", ())
    proposed = [event for event in map(json.loads, lines) if event["type"] == "action_proposed"]
    assert proposed
    assert not [word for word in ("Lisbon", "TP 531", ":420") if word in "".join(lines)]


async def test_checker_flags_a_granted_call_without_its_own_approval(rig: GatewayRig, tmp_path: Path) -> None:
    lines = trace(await ended(rig, await granted(rig)))
    assert (await checked(lines, tmp_path, ("alike:*",))).rule_counts == {"ACK001": 1}


def _swap(events: Events) -> None:
    (run,) = _of(events, "action_executed")
    run["action"] = {**run["action"], "parameters": {"digest": "0" * 64}}


def _deny(events: Events) -> None:
    _of(events, "approval_decision")[0]["decision"] = "deny"


def _repeat(events: Events) -> None:
    events.insert(-1, dict(_of(events, "action_executed")[0]))


def _unapproved(events: Events) -> None:
    _of(events, "action_executed")[0].pop("approval_id")


def _unasked(events: Events) -> None:
    events.remove(_of(events, "approval_requested")[0])


def _too_early(events: Events) -> None:
    (run,) = _of(events, "action_executed")
    events.remove(run)
    events.insert(1, run)


def _too_late(events: Events) -> None:
    (run,) = _of(events, "action_executed")
    run["timestamp"] = "2099-01-01T00:00:00Z"


def _of(events: Events, kind: str) -> Events:
    return [event for event in events if event["type"] == kind]


BROKEN = {
    "ACK001": _unapproved,
    "ACK002": _deny,
    "ACK003": _swap,
    "ACK004": _repeat,
    "ACK005": _too_late,
    "ACK006": _too_early,
    "ACK009": _unasked,
}


async def test_checker_finds_each_broken_rule(rig: GatewayRig, tmp_path: Path) -> None:
    lines = trace(await ended(rig, await approved(rig)))
    for rule, breaks in BROKEN.items():
        events = [json.loads(line) for line in lines]
        breaks(events)
        report = await checked([json.dumps(event) for event in events], tmp_path)
        assert rule in report.rule_counts, rule
        assert report.status == ("INCOMPLETE" if set(report.rule_counts) == {"ACK009"} else "FAIL")


async def test_checker_finds_an_edit_that_ran_without_approval(rig: GatewayRig, tmp_path: Path) -> None:
    events = [json.loads(line) for line in trace(await ended(rig, await edited(rig)))]
    for event in _of(events, "action_executed"):
        event.pop("approval_id")
    report = await checked([json.dumps(event) for event in events], tmp_path)
    assert {"ACK001", "ACK007"} <= set(report.rule_counts)


async def test_checker_reports_a_waiting_turn_as_incomplete(rig: GatewayRig, tmp_path: Path) -> None:
    key = await asked(rig, "pay")
    report = await checked(trace(await AuditLog(rig.turns.store).stream(key.workflow_id)), tmp_path)
    assert (report.status, set(report.rule_counts)) == ("INCOMPLETE", {"ACK009"})
    await rig.turns.signoff.cancel_turn(key)


async def test_trace_of_incomplete_records_is_refused(rig: GatewayRig) -> None:
    records = await ended(rig, await approved(rig))
    for data, words in (('{"too_long":40000,"sha256":"00"}', "too long"), ("[]", "was changed")):
        with pytest.raises(Refused, match=words):
            trace([replace(records[0], data=data)])
    assert trace([]) == []
