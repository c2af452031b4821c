"""`tools list`, `tools explain` and `tools metrics`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from signoff.activities.hooks.tool_hooks import judge_call
from signoff.approvals.argument_rows import plural
from signoff.audit.record import moment_text
from signoff.audit.tool_metrics import ENDINGS, ToolMetrics, tool_metrics
from signoff.cli.local.installation import LocalInstallation, find_installation
from signoff.cli.terminal.inputs import read_duration, read_object
from signoff.cli.terminal.options import AppArgument, AppOption, AsJson, Asker, Tenant
from signoff.cli.terminal.output import Output, run
from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.clock import system_clock
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError, NotFound
from signoff.contracts.message import CallPart
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.replace import replace
from signoff.people.directory import principal_of
from signoff.policy.explanation import explain_json, explain_text
from signoff.registry.capabilities import KINDS
from signoff.registry.catalog import Catalog
from signoff.registry.gates.actor_bounds import actor_bounds
from signoff.registry.gates.context_layers import ContextLayer, context_layers
from signoff.registry.gates.gate_trace import GateTraceEntry, gate_trace
from signoff.registry.gates.inventory import InventoryRow, inventory
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.registry import definition_hash
from signoff.registry.scopes.position import LayerTrace, owner_of
from signoff.registry.scopes.scope_selector import tools_in_scope
from signoff.registry.tool import Tool
from signoff.settings import load_settings


def metrics(
    since: Annotated[str, typer.Option(help="How far back: 30d, 12h.")] = "30d",
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show the runs of each tool, with failures, time and cost, from the audit log."""
    # The store's libraries take half a second to import, and the other commands of `tools` do not need them.
    from signoff.audit.log import AuditLog  # noqa: PLC0415
    from signoff.store.store import working_store  # noqa: PLC0415

    begin = moment_text(system_clock() - timedelta(seconds=read_duration(since, "--since")))

    async def body(out: Output) -> int:
        async with working_store(load_settings()) as store:
            found = await tool_metrics(AuditLog(store).records(tenant=tenant, since=begin, kinds=ENDINGS))
        out.show(found, _table(found) if found else "nothing ran")
        return 0

    run(body, as_json=as_json)


def _table(found: list[ToolMetrics]) -> Table:
    table = Table("tool", "runs", "ok", "failed", "mean", "longest", "cost", box=None, pad_edge=False)
    for each in found:
        failed = ", ".join(f"{count} {code}" for code, count in each.failed.items()) or "-"
        times = (f"{each.mean_ms:g} ms", f"{each.longest_ms} ms")
        table.add_row(each.tool, str(each.runs), str(each.ok), failed, *times, f"{each.cost:g} USD")
    return table


app = typer.Typer(help="List and explain the tools of a manifest.", no_args_is_help=True, rich_markup_mode=None)
app.command()(metrics)

_ANSWER_STYLE = {"passes": "green", "decides": "yellow", "open": "", "unasked": "dim"}
_OUTCOME_STYLE = {"won": "green", "lost": "dim", "absent": "dim"}
_NEEDS_STYLE = {"auto": "green", "asks": "yellow", "denied": "red", "hidden": "dim"}


@app.command("list")
def list_tools(
    source: AppArgument = "",
    scope: Annotated[str, typer.Option(help="The scope: agent, route, step, registered or all.")] = "all",
    actor: Annotated[str, typer.Option(help="Of this actor.")] = "",
    route: Annotated[str, typer.Option(help="On this route.")] = "",
    step: Annotated[str, typer.Option(help="At this step.")] = "",
    as_json: AsJson = False,
) -> None:
    """List every tool: whether it runs without approval, asks or may be denied, with its rule and approvers."""

    async def body(out: Output) -> int:
        catalog = find_installation(source).catalog
        wanted = tools_in_scope(catalog, scope, actor=actor, route=route, step=step)
        rows = tuple(row for row in inventory(catalog) if row.tool in wanted)
        out.show(rows, inventory_table(rows))
        return 0

    run(body, as_json=as_json)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's exact name.")],
    args: Annotated[str, typer.Option(help="Arguments as JSON, to judge this call.")] = "",
    actor: Annotated[str, typer.Option(help="The actor; if not given, the first one with the tool.")] = "",
    route: Annotated[str, typer.Option(help="On which route of the actor.")] = "",
    step: Annotated[str, typer.Option(help="At which step of the route.")] = "",
    data: Annotated[str, typer.Option(help="The collected data, as JSON.")] = "{}",
    person: Asker = "guest",
    tenant: Tenant = DEFAULT_TENANT,
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Explain a tool: how its name resolves, the answer of each gate and, with arguments, the verdict on a call."""
    given = read_object(args, "--args") if args else None
    collected = read_object(data, "--data")

    async def body(out: Output) -> int:
        place = find_installation(source)
        tool, ctx = _find_meant(place, name, (actor, route, step), (person, tenant))
        row = next(row for row in inventory(place.catalog) if row.tool == tool.activity)
        if ctx is not None:
            ctx = replace(ctx, extra={"data": collected})
        layers = () if ctx is None else place.catalog.tool_view(ctx).resolution(tool.name).trace
        found = await _decision(place, tool, ctx, given)
        gates = () if found is None else gate_trace(found, with_arguments=given is not None, needs=row.needs)
        words: list[RenderableType] = [_facts(tool, row), "", _gates_table(gates)]
        if ctx is not None and (route or step) and not place.catalog.scopes[ctx.actor].routed:
            words.append(
                f"\nnote: actor `{ctx.actor}` has no routes: rules read `--route` and `--step`, nothing else does"
            )
        if given is not None and found is not None:
            words.append(Text(f"\nthis call: {_decision_text(found)}"))
        if ctx is not None and place.catalog.scopes[ctx.actor].layered:
            words += ["", _layers_table(layers)]
        context = () if ctx is None else context_layers(place.catalog, ctx)
        bounds = None if ctx is None else actor_bounds(place.catalog.actors[ctx.actor])
        if context:
            words += ["", _context_table(context)]
        if bounds:
            words += ["", _bounds_table(bounds)]
        explanation = {"gates": gates, "layers": layers, "context": context, "bounds": bounds}
        out.show(_explain(tool, row, None if given is None else found) | explanation, *words)
        return 0

    run(body, as_json=as_json)


def find_tool(catalog: Catalog, name: str) -> Tool:
    """Raises `NotFound` with the nearest names."""
    found = catalog.tool(name)
    if found is None:
        raise NotFound(f"there is no tool {quote_name(name)}{did_you_mean(name, catalog.registry.list())}")
    return found


def _find_meant(
    place: LocalInstallation, name: str, where: tuple[str, str, str], asker: tuple[str, str]
) -> tuple[Tool, CallContext | None]:
    """`name` may be an activity. `asker` is a person's id and tenant."""
    catalog = place.catalog
    actor, route, step = where
    named = catalog.tool(name) or next(iter(catalog.tools_named(name)), None)
    if actor and actor not in catalog.actors:
        raise NotFound(f"there is no actor {quote_name(actor)}{did_you_mean(actor, catalog.actors)}")
    if named is None:
        known = {tool.name for tool in catalog.every_tool}
        raise NotFound(f"there is no tool {quote_name(name)}{did_you_mean(name, known)}")
    if not any(where):
        actor, route, step = owner_of(named)
    row = next(row for row in inventory(catalog) if row.tool == named.activity)
    actor = actor or next(iter(row.actors), "")
    if not actor:
        return named, None
    catalog.scopes[actor].check(route, step, ())
    ctx = replace(call_context_of(place, actor, *asker), route=route, step=step)
    return catalog.tool_view(ctx).tool(named.name) or named, ctx


def summarize_catalog(catalog: Catalog) -> str:
    counts = (
        (len(catalog.actors), "actor"),
        (catalog.registry.size, "tool"),
        (len(catalog.declared_rules), "global rule"),
    )
    return ", ".join(plural(number, what) for number, what in counts)


def find_problems(catalog: Catalog) -> list[str]:
    """Use one sentence for each part that could not be checked at compilation."""
    found = [f"tool `{name}`: {each}" for name, policy in catalog.policies.items() for each in policy.findings]
    return [*found, *catalog.rules.findings]


def inventory_table(rows: tuple[InventoryRow, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("Tool", "Gate", "Rule", "Approvers", "Actors"):
        table.add_column(column, no_wrap=column == "Tool", overflow="fold")
    for row in rows:
        table.add_row(
            row.tool,
            Text(row.needs, style=_NEEDS_STYLE.get(row.needs, "")),
            "\n".join([*row.rules, *_reasons(row)]),
            ", ".join(row.approvers),
            ", ".join(row.actors),
        )
    return table


def _reasons(row: InventoryRow) -> list[str]:
    given = {"not routed": row.bypass_reason, "of one actor": row.justification}
    return [f"{words}: {why}" for words, why in given.items() if why]


def call_context_of(place: LocalInstallation, actor: str, person_id: str, tenant: str) -> CallContext:
    """Imagine a turn of this person with this actor. Raises `NotFound`."""
    user = principal_of(place.person(person_id, tenant), place.people)
    return CallContext(actor=actor, session="explained", turn="explained", tenant=tenant, channel="cli", user=user)


async def _decision(
    place: LocalInstallation, tool: Tool, ctx: CallContext | None, args: dict[str, Any] | None
) -> JudgedCall | None:
    """`args` is `None` for a call without arguments. Returns `None` if no actor could make the call."""
    if ctx is None:
        if args is None:
            return None
        raise ConfigError(f"no actor has the tool `{tool.name}`: add it to the `tools` of one")
    call = CallPart(call="c1.1", tool=tool.name, args=Content(inline=args or {}))
    if args is None:
        # Ask no handler: it cannot judge missing arguments.
        return judge(place.catalog, ctx, call, {}, Tally())
    return await judge_call(place.catalog, ctx, call, args, frozenset(KINDS), at=system_clock())


def _gates_table(gates: tuple[GateTraceEntry, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("Gate", "Says", "Why"):
        table.add_column(column, no_wrap=column != "Why", overflow="fold")
    for each in gates:
        table.add_row(each.gate, Text(each.answer, style=_ANSWER_STYLE[each.answer]), Text(each.words))
    return table


def _layers_table(layers: tuple[LayerTrace, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("Layer", "Where", "Its tool", "Why"):
        table.add_column(column, no_wrap=column != "Why", overflow="fold")
    for each in layers:
        table.add_row(each.layer, each.where, Text(each.outcome, style=_OUTCOME_STYLE[each.outcome]), Text(each.why))
    return table


def _context_table(layers: tuple[ContextLayer, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("Context", "Set by", "Holds", "Changes"):
        table.add_column(column, no_wrap=column == "Context", overflow="fold")
    for each in layers:
        changes = "never after it is loaded" if each.fixed else "only values that no layer above sets"
        table.add_row(f"{each.number} {each.name}", each.set_by, Text(", ".join(each.holds)), changes)
    return table


def _bounds_table(bounds: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in bounds.items():
        table.add_row(name, Text(", ".join(value) if isinstance(value, tuple) else str(value)))
    return table


def _decision_text(found: JudgedCall) -> str:
    if found.verdict is not None:
        return explain_text(found.verdict)
    return f"{found.code} at gate {found.gate}: {found.message}"


def _explain(tool: Tool, row: InventoryRow, judged: JudgedCall | None) -> dict[str, Any]:
    facts = {
        **vars(row),
        "description": tool.description,
        "effect": tool.effect,
        "input_schema": tool.schema.schema,
        "secrets": tool.masked_arguments,
        "read_only": tool.read_only,
        "idempotent": tool.idempotent,
        "timeout": tool.timeout,
        "version": tool.version,
        "definition": definition_hash(tool),
        "declared_at": tool.site,
    }
    if judged is None:
        return facts
    verdict = explain_json(judged.verdict) if judged.verdict is not None else None
    call = {"kind": judged.explained_kind, "gate": judged.gate, "code": judged.code, "message": judged.message}
    return {**facts, "call": {**call, "verdict": verdict}}


def _facts(tool: Tool, row: InventoryRow) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    kinds = [word for word, holds in (("read-only", tool.read_only), ("idempotent", tool.idempotent)) if holds]
    table.add_row("tool", Text(tool.activity, style="bold"))
    table.add_row("does", tool.description)
    table.add_row("effect", tool.effect)
    table.add_row("kind", ", ".join([tool.scope, tool.routing, *kinds, *tool.tags]))
    for name, schema in tool.schema.schema.get("properties", {}).items():
        wanted = "" if name in tool.schema.schema.get("required", ()) else ", optional"
        secret = ", secret" if name in tool.masked_arguments else ""
        kind = schema.get("type", "any") if isinstance(schema, dict) else "any"
        table.add_row(f"  {name}", f"{kind}{wanted}{secret}")
    table.add_row("gate", row.needs)
    for rule in row.rules:
        table.add_row("rule", rule)
    for why in _reasons(row):
        table.add_row("because", why)
    if row.approvers:
        table.add_row("who decides", ", ".join(row.approvers))
    table.add_row("actors", ", ".join(row.actors))
    table.add_row("declared at", tool.site)
    return table
