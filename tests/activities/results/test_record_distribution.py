import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from activity_kit import ARGS, TURN, begun, environment, free, run, summary, task_for, worker_deps
from some import some
from tables import table
from turn_fixtures import Ledger

from signoff.activities.results import result_processor
from signoff.approvals.redaction import HIDDEN
from signoff.audit.event_deliveries import is_for
from signoff.audit.event_stream import EventStream
from signoff.audit.log import AuditLog
from signoff.contracts.audit import CloudEvent
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.results.destinations import Delivery, DeliveryFailure, Destination
from signoff.registry.results.reducers import ReducerRegistry, ToolReducer
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import AnnotatedRecord, Annotations, RecordField, ToolResult, identity
from signoff.store.content_store import load
from signoff.store.store import Store

PRIVATE, SECRET = Annotations(privacy="private"), Annotations(privacy="secret")
RECORD = AnnotatedRecord(
    {
        "fare": RecordField(120, Annotations(tier="anchored", slots={"acme.icon": "bus", "other.x": 1})),
        "margin": RecordField(0.3, PRIVATE),
        "passport": RecordField("X1234567", SECRET),
    }
)
OWN: dict[str, Any] = {"scope": "specialist", "justification": "only the desk pays"}
BYPASS: dict[str, Any] = {**OWN, "routing": "bypass", "bypass_routing": BypassRouting("nobody else may hear of it")}


class Stage:
    def __init__(self) -> None:
        self.got: dict[str, Delivery] = {}
        self.missed: list[DeliveryFailure] = []

    async def take(self, delivery: Delivery) -> None:
        self.got[delivery.destination] = delivery

    def to(self, name: str, view: Any = identity, **fields: Any) -> Destination:
        return Destination(**{"name": name, "filter": view, "sink": self.take, **fields})


def names(*kept: str) -> Callable[[AnnotatedRecord], AnnotatedRecord]:
    return lambda record: record.only(kept)


def broken(record: AnnotatedRecord) -> AnnotatedRecord:
    raise ValueError(str(record.values))


def spoiling(record: AnnotatedRecord) -> AnnotatedRecord:
    for each in record.fields.values():
        if isinstance(each.value, list):
            each.value.clear()
    return record


async def called(store: Store, answer: Any, *to: Destination, **fields: Any) -> tuple[Tool, CallOutcome]:
    ledger = Ledger()
    more = {key: fields.pop(key) for key in ("observer", "reducers") if key in fields}
    tool = free(ledger, handler=ledger.handler("pay", answer), **fields)
    reply = await run(worker_deps(store, tool, destinations=to, **more), tool, task_for(tool))
    assert reply.outcome is not None
    assert len(ledger.rows) == 1
    return tool, reply.outcome


async def facts(store: Store, kind: str) -> dict[str, Any]:
    (found,) = [each.facts for each in await AuditLog(store).stream(TURN.workflow_id) if each.kind == kind]
    return found


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each filter, sink and observer may wait for a thread."""
    monkeypatch.setattr(result_processor, "DELIVERY_SECONDS", 60.0)
    monkeypatch.setattr(result_processor, "_OBSERVER_SECONDS", 60.0)


@pytest.mark.row("B32")
async def test_record_reaches_every_destination_in_its_own_view(store: Store) -> None:
    stage = Stage()
    to = [
        stage.to("cache"),
        stage.to("ui-streaming", names("fare", "margin"), reads=("acme",)),
        stage.to("formatter:html", names("fare")),
        stage.to("formatter:text", names("margin")),
        stage.to("peer-response", names("fare")),
    ]
    tool, outcome = await called(store, RECORD, *to, peer_exposed=True)
    views = {name: each.record.values for name, each in stage.got.items()}
    assert views == {
        "cache": RECORD.values,
        "ui-streaming": {"fare": 120, "margin": 0.3},
        "formatter:html": {"fare": 120},
        "formatter:text": {"margin": 0.3},
        "peer-response": {"fare": 120},
    }
    assert stage.got["ui-streaming"].record.fields["fare"].annotations.slots == {"acme.icon": "bus"}
    assert stage.got["cache"].record.fields["fare"].annotations == Annotations(tier="anchored")
    one = stage.got["cache"]
    assert (one.tool, one.call_id, one.actor_name, one.tenant_id) == ("pay", "c1.1", "desk", "main")
    assert (one.session_id, one.turn_id) == (TURN.session, TURN.turn)
    assert one.idempotency_key == task_for(tool).digest
    assert (outcome.code, outcome.value.inline) == ("ok", '{"fare":120}')


@pytest.mark.row("B31")
async def test_model_and_programs_read_the_model_view_of_a_record(store: Store) -> None:
    reducers = ReducerRegistry()
    reducers.register(ToolReducer("pay", lambda result, given: ToolResult(f"short {result.value}")))  # type: ignore[union-attr]
    model = Destination(name="llm-session", filter=names("fare", "margin"))
    _, outcome = await called(store, ToolResult(RECORD, cost=0.5), model, reducers=reducers)
    assert outcome.value.inline == 'short {"fare":120,"margin":0.3}'
    assert (outcome.structured, outcome.cost) == (Content(inline={"fare": 120, "margin": 0.3}), 0.5)
    assert "X1234567" not in outcome.model_dump_json()


async def test_audit_log_holds_the_audit_view_of_a_record(store: Store) -> None:
    await called(store, RECORD)
    assert (await facts(store, "outcome"))["result"] == f'{{"fare":120,"margin":0.3,"passport":"{HIDDEN}"}}'


async def test_tool_filter_replaces_the_filter_of_a_destination(store: Store) -> None:
    stage = Stage()
    filters = {"cache": names("margin"), "audit": names("fare")}
    await called(store, RECORD, stage.to("cache"), filters=filters)
    assert stage.got["cache"].record.values == {"margin": 0.3}
    assert (await facts(store, "outcome"))["result"] == '{"fare":120}'


@pytest.mark.row("B34")
@table("how", "sink raises", "sink hangs", "sink ends the process", "filter raises", "no record")
async def test_failed_delivery_leaves_the_outcome_unchanged(
    store: Store, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()

    async def sink(delivery: Delivery) -> None:
        if how == "sink hangs":
            await asyncio.Event().wait()
        raise SystemExit("X1234567") if how == "sink ends the process" else ConnectionError("X1234567")

    views: dict[str, Any] = {"filter raises": broken, "no record": lambda record: record.values}
    bad = stage.to("formatter:bad", views.get(how, identity_but_named), sink=sink)
    if how == "sink hangs":
        # No time limit for the other sinks: views are made in a thread, which can be slow on a busy machine.
        monkeypatch.setattr(result_processor, "DELIVERY_SECONDS", 2.0)
    _, outcome = await called(store, RECORD, bad, stage.to("cache"), observer=stage.missed.append)
    assert (outcome.code, outcome.value.inline) == ("ok", '{"fare":120}')
    assert list(stage.got) == ["cache"]
    (value,) = stage.missed
    assert (value.destination, value.tool, value.call_id, value.turn_id) == ("formatter:bad", "pay", "c1.1", TURN.turn)
    assert (
        value.why
        == {
            "sink raises": "ConnectionError",
            "sink hangs": "no answer within 2 s",
            "sink ends the process": "HandlerEnded",
            "filter raises": "ValueError",
            "no record": "TypeError",
        }[how]
    )
    (logged,) = caplog.messages
    assert logged.partition(" (")[0] == f"the record of pay did not reach formatter:bad: {value.why}"
    assert "X1234567" not in caplog.text


def identity_but_named(record: AnnotatedRecord) -> AnnotatedRecord:
    return record


@pytest.mark.row("N20")
async def test_only_a_failed_model_view_fails_the_call(store: Store) -> None:
    stage = Stage()
    model = Destination(name="llm-session", filter=broken)
    _, outcome = await called(store, ToolResult(RECORD, cost=0.5), model, stage.to("cache"))
    assert (outcome.code, outcome.gate, outcome.structured, outcome.cost) == (
        "execution_failed",
        "distribute",
        None,
        0.5,
    )
    assert "`pay` ran and took effect" in str(outcome.value.inline)
    assert "X1234567" not in outcome.model_dump_json()
    assert stage.got["cache"].record.values == RECORD.values
    ended = await facts(store, "outcome")
    assert (ended["code"], ended["gate"]) == ("execution_failed", "distribute")
    assert '"fare":120' in ended["result"]


async def test_failed_audit_filter_hides_all_fields(store: Store) -> None:
    _, outcome = await called(store, RECORD, Destination(name="audit", filter=broken))
    assert outcome.code == "ok"
    fields = ",".join(f'"{name}":"{HIDDEN}"' for name in RECORD.fields)
    assert (await facts(store, "outcome"))["result"] == f"{{{fields}}}"


async def test_failing_observer_does_not_affect_the_call(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def observer(value: DeliveryFailure) -> None:
        raise ValueError("no")

    _, outcome = await called(store, RECORD, Stage().to("cache", broken), observer=observer)
    assert outcome.code == "ok"
    assert caplog.messages[-1].partition(" (")[0] == "the observer of deliveries failed: ValueError"


async def test_impure_filter_does_not_change_other_views(store: Store) -> None:
    stage = Stage()
    record = AnnotatedRecord({"seats": RecordField([1, 2])})
    spoilt = [stage.to("formatter:a", spoiling), stage.to("cache"), stage.to("formatter:b", spoiling)]
    _, outcome = await called(store, record, *spoilt)
    assert {name: each.record.values["seats"] for name, each in stage.got.items()} == {
        "formatter:a": [],
        "cache": [1, 2],
        "formatter:b": [],
    }
    assert (outcome.value.inline, record.values) == ('{"seats":[1,2]}', {"seats": [1, 2]})


async def test_record_outside_its_schema_is_not_delivered(store: Store) -> None:
    stage = Stage()
    schema = {"type": "object", "required": ["seat"]}
    _, outcome = await called(store, RECORD, stage.to("cache"), output_schema=schema)
    assert (outcome.code, outcome.gate, stage.got) == ("execution_failed", "output", {})
    assert outcome.structured == Content(inline={"fare": 120})
    assert '"margin":0.3' in (await facts(store, "outcome"))["result"]


async def test_record_within_its_schema_reaches_every_destination(store: Store) -> None:
    stage = Stage()
    schema = {"type": "object", "required": ["fare", "margin", "passport"]}
    _, outcome = await called(store, RECORD, stage.to("cache"), output_schema=schema)
    assert (outcome.code, outcome.value.inline, list(stage.got)) == ("ok", '{"fare":120}', ["cache"])


async def test_explicit_structured_data_replaces_the_record_fields(store: Store) -> None:
    _, outcome = await called(store, ToolResult(RECORD, structured={"seat": 7}))
    assert (outcome.value.inline, outcome.structured) == ('{"fare":120}', Content(inline={"seat": 7}))


@table("fields", None, {"a": 1}, {1: RecordField(1)})
async def test_malformed_record_is_not_delivered(store: Store, fields: Any, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    _, outcome = await called(store, AnnotatedRecord(fields), stage.to("cache"))
    assert caplog.messages[0].partition(" (")[0] == "pay returned no right record: TypeError"
    assert (outcome.code, outcome.gate, stage.got) == ("execution_failed", "distribute", {})


async def test_plain_value_is_shown_only_to_the_model(store: Store) -> None:
    stage = Stage()
    _, outcome = await called(store, {"fields": {"fare": 1}}, stage.to("cache"))
    assert (outcome.value.inline, stage.got) == ('{"fields":{"fare":1}}', {})
    assert "result" not in await facts(store, "outcome")


async def dispatched(store: Store, *, with_private: bool) -> list[CloudEvent]:
    stream = EventStream(store, lambda tool: False)
    await stream.extend()
    found = await stream.read(TURN.tenant, 0, limit=100, with_private=with_private)
    return [each for each in found.events if each.type.startswith("tool_call:")]


@pytest.mark.row("B30")
async def test_routed_call_emits_an_event_before_its_handler_runs(store: Store) -> None:
    seen: list[CloudEvent] = []

    async def pay(args: Mapping[str, Any], ctx: ToolContext) -> str:
        seen.extend(await dispatched(store, with_private=False))
        return "paid"

    tool = free(Ledger(), handler=pay)
    await run(worker_deps(store, tool), tool, task_for(tool))
    assert [(each.type, each.source, each.data["arguments"]) for each in seen] == [
        ("tool_call:pay", "actor:desk", dict(ARGS))
    ]


@pytest.mark.row("B37")
async def test_routed_specialist_event_is_private_to_the_calling_actor(store: Store) -> None:
    await called(store, "paid", **OWN)
    assert await dispatched(store, with_private=False) == []
    (event,) = await dispatched(store, with_private=True)
    assert (event.type, event.source, event.data["arguments"]) == ("tool_call:pay", "actor:desk", dict(ARGS))
    feeds = [Subscription("feed", ("*",), actor=actor) for actor in ("desk", "other", "")]
    assert [is_for(feed, event) for feed in feeds] == [True, False, False]


@pytest.mark.row("B38")
async def test_bypass_emits_no_event_but_is_recorded(store: Store) -> None:
    """Even operators do not see it as `tool_call:*`."""
    await called(store, "paid", **BYPASS)
    assert await dispatched(store, with_private=True) == []
    began = await facts(store, "execution")
    assert {"event", "source", "private"} & set(began) == set()
    assert (await facts(store, "outcome"))["code"] == "ok"


@pytest.mark.row("B39")
@pytest.mark.parametrize("fields", [OWN, BYPASS])
async def test_specialist_call_is_recorded_in_full(store: Store, fields: dict[str, Any]) -> None:
    tool, outcome = await called(store, "paid Ana", secrets=("to",), effect="", tags=("money",), **fields)
    ended = await facts(store, "outcome")
    routing = fields.get("routing", "routed")
    assert ended["record"] == "specialist_execution"
    assert (ended["actor"], ended["tool"], ended["scope"], ended["routing"]) == ("desk", "pay", "specialist", routing)
    assert ended.get("bypass_reason") == ("nobody else may hear of it" if routing == "bypass" else None)
    assert ended["justification"] == tool.justification
    assert ended["arguments"] == {"amount": 20, "to": HIDDEN}
    assert (ended["result"], ended.get("result_chars")) == (f"paid {HIDDEN}", None)
    assert ended.get("duration_ms", 0) == outcome.duration_ms
    assert (ended["site"], ended["tags"], ended["completion"]) == (tool.site, ["money"], 1)


@pytest.mark.row("B40")
async def test_every_executed_call_records_its_dispatch(store: Store) -> None:
    tool, _ = await called(store, "paid", tags=("money",))
    ended = await facts(store, "outcome")
    value = {
        name: ended[name] for name in ("actor", "scope", "routing", "site", "tags", "completion", "tool", "approval")
    }
    assert value == {
        "actor": "desk",
        "scope": "generalist",
        "routing": "routed",
        "site": tool.site,
        "tags": ["money"],
        "completion": 1,
        "tool": "pay",
        "approval": f"{TURN.tenant}.{TURN.session}.{TURN.turn}.c1.1",
    }
    assert not {"record", "arguments", "result", "bypass_reason"} & set(ended)


@pytest.mark.row("B39")
async def test_long_values_are_cut_in_the_log_and_kept_in_the_store(store: Store, ledger: Ledger) -> None:
    args = {"amount": 20, "to": "ü" * 9_000}
    tool = free(ledger, handler=ledger.handler("pay", "é" * 5_000), **OWN)
    reply = await run(worker_deps(store, tool), tool, task_for(tool, args=args))
    assert not some(reply.outcome).truncated
    ended = await facts(store, "outcome")
    assert ended["result"] == f"{'é' * 2_000}\n[truncated — 5000 chars total]"
    assert ended["result_chars"] == 5_000
    kept = ended["arguments_kept"]
    assert await load(store, Content.model_validate({"blob": kept})) == args


async def test_specialist_failure_is_recorded_without_secrets(store: Store) -> None:
    def fails(args: Any, ctx: Any) -> Any:
        raise ValueError(f"{args['to']} is not there")

    await called(store, fails, secrets=("to",), effect="", **OWN)
    ended = await facts(store, "outcome")
    assert (ended["code"], ended["result"], ended["arguments"]["to"]) == (
        "execution_failed",
        f"{HIDDEN} is not there",
        HIDDEN,
    )
    assert ARGS["to"] not in str(await AuditLog(store).stream(TURN.workflow_id))


async def test_second_run_of_the_same_call_adds_no_entry(store: Store, ledger: Ledger) -> None:
    tool = free(ledger, read_only=True, **BYPASS)
    deps = worker_deps(store, tool)
    await run(deps, tool, task_for(tool))
    await run(deps, tool, task_for(tool))
    assert len(ledger.rows) == 2
    assert (await facts(store, "outcome"))["record"] == "specialist_execution"


async def test_all_destinations_are_served_concurrently(store: Store) -> None:
    stage, there = Stage(), [asyncio.Event(), asyncio.Event()]

    def sink(mine: int) -> Any:
        async def take(delivery: Delivery) -> None:
            there[mine].set()
            await there[1 - mine].wait()
            await stage.take(delivery)

        return take

    await called(store, RECORD, stage.to("cache", sink=sink(0)), stage.to("ui-streaming", sink=sink(1)))
    assert sorted(stage.got) == ["cache", "ui-streaming"]


async def test_turn_cancelled_during_delivery_keeps_the_outcome(store: Store) -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    async def slow(delivery: Delivery) -> None:
        arrived.set()
        await go.wait()

    tool = free(Ledger(), handler=Ledger().handler("pay", RECORD))
    deps = worker_deps(store, tool, destinations=[Stage().to("cache", sink=slow)])
    env, task = environment(), task_for(tool)
    running = asyncio.ensure_future(run(deps, tool, task, env))
    await begun(running, arrived)
    env.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    go.set()
    assert summary(await running) == ("ok", '{"fare":120}')
    ticket = some(await store.read_ticket(task.digest))
    assert ticket.outcome is not None


async def test_handler_changes_to_its_arguments_do_not_change_the_log(store: Store) -> None:
    def spoils(args: Any, ctx: Any) -> Any:
        secret = args.pop("to")
        args["amount"] = object()
        return f"paid {secret}"

    await called(store, spoils, secrets=("to",), effect="", **OWN)
    ended = await facts(store, "outcome")
    assert ended["arguments"] == {"amount": 20, "to": HIDDEN}
    assert (ended["result"], ended.get("result_chars")) == (f"paid {HIDDEN}", None)
