from pathlib import Path

import pytest
from registry_kit import a_call, a_context, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.contracts.names import READ_REST
from signoff.registry.built_in_tools import HANDLE_CHARS, READ_REST_TOOL
from signoff.registry.catalog import build_catalog
from signoff.registry.gates.pipeline import judge
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.registry import ToolRegistry

ARGS = {"handle": "x" * HANDLE_CHARS, "start": 0}
CODE = '''
async def look() -> str:
    """Look."""
    return "seen"
'''


def test_catalog_is_unchanged_without_a_reader() -> None:
    plain = build_catalog(tools=[a_tool()], actors=[an_actor()])
    reader = build_catalog(tools=[a_tool()], actors=[an_actor(read_rest=True)])
    assert plain.registry.list() == ("book_flight",)
    assert reader.registry.list() == ("book_flight", READ_REST)
    both = [
        build_catalog(actors=[an_actor("a", read_rest=one), an_actor("b", read_rest=not one)]).hash
        for one in (True, False)
    ]
    assert len({plain.hash, reader.hash, *both}) == 4


@table("tools", None, (), ("book_flight",))
def test_only_the_declaring_actor_sees_and_runs_read_rest(tools: tuple[str, ...] | None) -> None:
    actors = [an_actor("reader", tools=tools, read_rest=True), an_actor("other", tools=tools)]
    catalog = build_catalog(tools=[a_tool()], actors=actors)
    for actor, sees in (("reader", True), ("other", False)):
        offered = [each.name for each in catalog.offered_tools(actor, pinned(actor))]
        assert (READ_REST in offered) is sees
        found = judge(catalog, pinned(actor), a_call(READ_REST), ARGS, Tally())
        assert (found.kind, found.code) == (("run", "ok") if sees else ("settled", "not_available"))


@table("args", {}, {"handle": "x", "start": 0}, {**ARGS, "start": -1}, {**ARGS, "start": "0"}, {**ARGS, "path": "/etc"})
def test_arguments_of_read_rest_are_validated(args: dict[str, object]) -> None:
    catalog = build_catalog(actors=[an_actor(read_rest=True)])
    assert judge(catalog, pinned(), a_call(READ_REST), ARGS, Tally()).kind == "run"
    assert judge(catalog, pinned(), a_call(READ_REST), args, Tally()).code == "input_invalid"


def test_name_of_read_rest_is_reserved() -> None:
    for actors in ([], [an_actor(read_rest=True)]):
        with pytest.raises(RegistrationError, match="has a reserved name") as raised:
            build_catalog(tools=[a_tool(READ_REST)], actors=actors)
        assert raised.value.context["tool_name"] == READ_REST
    with pytest.raises(ConfigError, match="write `read_rest: true` instead"):
        build_catalog(actors=[an_actor(tools=(READ_REST,), read_rest=True)])


async def test_read_rest_tool_runs_only_on_a_worker() -> None:
    assert ToolRegistry([READ_REST_TOOL]).size == 1
    with pytest.raises(ConfigError, match="only a worker can run it"):
        await READ_REST_TOOL.handler(ARGS, a_context())


@table("spelling", "snake", "camel")
def test_manifest_sets_the_handling_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    (tmp_path / "result_handlers.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    keys = {
        "snake": ("read_rest", "return_direct", "untrusted_output"),
        "camel": ("readRest", "returnDirect", "outputIsUntrusted"),
    }[spelling]
    (tmp_path / "signoff.yaml").write_text(
        f"""\
version: 1
actors:
  reader: {{model: "scripted:x:y", {keys[0]}: true}}
  other: {{model: "scripted:x:y"}}
tools:
  look: {{handler: "result_handlers:look", scope: generalist, {keys[1]}: true}}
  listen: {{handler: "result_handlers:look", scope: generalist, {keys[2]}: true}}
"""
    )
    catalog = load_manifest(tmp_path / "signoff.yaml")
    assert [catalog.actor(name).read_rest for name in ("reader", "other")] == [True, False]
    tools = {tool.name: (tool.return_direct, tool.untrusted_output) for tool in catalog.tools()}
    assert tools == {"listen": (False, True), "look": (True, False), READ_REST: (False, True)}
