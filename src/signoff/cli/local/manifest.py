"""`manifest validate`, `manifest tree`, `manifest diff`, `manifest schema` and `manifest show`."""

import sys
from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer
from rich.text import Text
from rich.tree import Tree

from signoff.activities.models.start_check import check_start
from signoff.approvals.argument_rows import plural
from signoff.cli.local.installation import find_installation
from signoff.cli.local.tools import find_problems, summarize_catalog
from signoff.cli.terminal.options import AppArgument, AsJson
from signoff.cli.terminal.output import Output, run
from signoff.contracts.errors import ConfigError
from signoff.formats.object_schema import is_plain_object
from signoff.registry.actor import Level, tool_uses
from signoff.registry.catalog import Catalog
from signoff.registry.catalog_diff import CatalogDiff, catalog_diff
from signoff.registry.gates.inventory import InventoryRow, inventory
from signoff.registry.manifest.schema_export import ManifestPart, keys_by_part, manifest_schema
from signoff.registry.normal_form import normal_text
from signoff.registry.peer_view import PeerTool, peer_view

app = typer.Typer(
    help="Check, show and compare manifests, and print their schema.", no_args_is_help=True, rich_markup_mode=None
)

_BAD_INVOCATION = 2
_KEYS: Final = "\n\n".join(
    (
        "Keys of each part, which may be written in camelCase, too:",
        *(f"{part}: {', '.join(keys)}" for part, keys in keys_by_part().items()),
    )
)


@app.command()
def validate(source: AppArgument = "", as_json: AsJson = False) -> None:
    """Check the whole manifest: actors, tools, handlers, policies, models and the secrets they need."""

    async def body(out: Output) -> int:
        place = find_installation(source)
        catalog = place.catalog
        await check_start(place, place.task_queue)
        notes = [*find_problems(catalog), *health_notes(catalog)]
        data = {
            "manifest": place.source,
            "actors": list(catalog.actors),
            "tools": list(catalog.registry.list()),
            "hash": catalog.hash,
            "findings": notes,
        }
        out.show(
            data,
            f"{place.source} is right: {summarize_catalog(catalog)}",
            *(f"note: {note}" for note in notes),
        )
        return 0

    run(body, as_json=as_json)


@app.command()
def tree(
    source: AppArgument = "",
    peers: Annotated[bool, typer.Option("--peers", help="Only the tools for other agents.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the tools by scope with their actors, and the actors with their tools."""

    async def body(out: Output) -> int:
        place = find_installation(source)
        if peers:
            found = peer_view(place.catalog)
            words = (
                _peers(found) if found else "no tool is for other agents; `peer_exposed: true` makes a generalist so"
            )
            out.show({"tools": [each.model_dump(mode="json") for each in found]}, words)
            return 0
        rows = inventory(place.catalog)
        data = {"manifest": place.source, "hash": place.catalog.hash, **_group(place.catalog, rows)}
        out.show(data, _tree(place.source, place.catalog, rows))
        return 0

    run(body, as_json=as_json)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A program, MODULE:APP, or a manifest.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Another one.")],
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Exit code 1 only where calls that wait lose something.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two manifests; exit code 0 if they are equal, 1 if they differ, 2 if one cannot be read."""

    async def body(out: Output) -> int:
        try:
            found = catalog_diff(find_installation(old).catalog, find_installation(new).catalog)
        except ConfigError as error:
            # Not 1: a script that compares two manifests must not take this for a difference.
            print(f"signoff: {error.message}", file=sys.stderr)
            return _BAD_INVOCATION
        out.show({**found.model_dump(mode="json"), "stale": found.stale}, *_diff_words(found))
        return 1 if (found.costs_waiting_calls if waiting else found.changes) else 0

    run(body, as_json=as_json)


@app.command(epilog=_KEYS)
def schema(
    part: Annotated[
        str, typer.Option(help="The part: `manifest`, or one file of a directory: tool, actor, policies, people.")
    ] = "manifest",
) -> None:
    """Print the JSON Schema of the manifest, for editors."""
    parts: dict[str, ManifestPart] = {
        "manifest": "manifest",
        "tool": "tool",
        "actor": "actor",
        "policies": "policies",
        "people": "people",
    }
    if part not in parts:
        raise typer.BadParameter(f"`{part}` is none of {', '.join(parts)}", param_hint="--part")

    async def body(out: Output) -> int:
        out.show(manifest_schema(parts[part]))
        return 0

    run(body, as_json=True)


@app.command()
def show(source: AppArgument = "") -> None:
    """Print the manifest's normal form as JSON: the same declarations give the same bytes, however they are written."""

    async def body(out: Output) -> int:
        out.write(normal_text(find_installation(source).catalog))
        return 0

    run(body, as_json=True)


def health_notes(catalog: Catalog) -> list[str]:
    """Use one sentence for each oddity."""
    rows = inventory(catalog)
    unused = [f"tool `{row.tool}`: no actor has it" for row in rows if not row.actors and catalog.actors]
    shared = [
        f"tool `{row.tool}`: a specialist, but {' and '.join(f'`{name}`' for name in row.actors)} have it"
        for row in rows
        if row.scope == "specialist" and len(row.actors) > 1
    ]
    chosen = [
        f"tool `{tool.name}`: `input_schema` chooses between schemas at its top, which older MCP clients and some "
        "providers refuse; at `/mcp` the older clients see one object with all properties"
        for tool in catalog.every_tool
        if not is_plain_object(tool.schema.schema)
    ]
    return [*unused, *shared, *chosen]


def _diff_words(found: CatalogDiff) -> Iterable[str]:
    if not found.changes:
        return ["nothing differs"]
    counts = f"{plural(len(found.changes), 'difference')}; {plural(len(found.stale), 'tool')} to be approved anew"
    return [*(change.words for change in found.changes), counts]


def _group(catalog: Catalog, rows: Iterable[InventoryRow]) -> dict[str, Any]:
    scopes: dict[str, list[dict[str, Any]]] = {"generalist": [], "specialist": []}
    for row in rows:
        scopes[row.scope].append({"tool": row.tool, "routing": row.routing, "needs": row.needs, "actors": row.actors})
    return {"scopes": scopes, "actors": {name: _tools_of(name, rows) for name in catalog.actors}}


def _tools_of(actor: str, rows: Iterable[InventoryRow]) -> list[str]:
    return [row.tool for row in rows if actor in row.actors]


def _peers(found: Iterable[PeerTool]) -> Tree:
    asks = {"never": "asks nobody", "maybe": "maybe asks", "always": "asks"}
    top = Tree(Text("for other agents, though nothing publishes it yet"), guide_style="dim")
    for each in found:
        top.add(Text(f"{each.name}  {asks[each.approval]}  {each.description}"))
    return top


def _tree(name: str, catalog: Catalog, rows: tuple[InventoryRow, ...]) -> Tree:
    top = Tree(Text(name), guide_style="dim")
    for scope in ("generalist", "specialist"):
        branch = top.add(Text(f"{scope} tools"))
        for row in rows:
            if row.scope == scope:
                who = ", ".join(row.actors) or "no actor"
                branch.add(Text(f"{row.tool}  {row.routing}, {row.needs}  ({who})"))
    for actor, declared in catalog.actors.items():
        branch = top.add(Text(f"actor {actor}"))
        for tool in _tools_of(actor, rows):
            branch.add(Text(tool))
        for route in declared.routes:
            level = branch.add(_level("route", route))
            for step in route.steps:
                level.add(_level("step", step))
    return top


def _level(kind: str, level: Level) -> Text:
    names = ", ".join(use.name for use in tool_uses(level.tools))
    only = "(no tools but these)" if level.mode == "only" else ""
    return Text("  ".join(filter(None, (f"{kind} {level.name}", names, only))))
