from typing import Any

import pytest
from tables import table

import signoff
from signoff.testing import ScriptedModel, a_call_context, calls, execute_parallel, respond, results, steps
from signoff.tools import (
    BUILT_IN,
    Capabilities,
    HookContext,
    ReducerInput,
    ReducerRegistry,
    Result,
    ToolReducer,
    ok_results,
)

SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}}
CTX = a_call_context(actor="ada")


@ok_results
async def read_file(args: dict[str, Any], ctx: signoff.ToolContext) -> dict[str, Any]:
    if args.get("count", 0) < 0:
        return {"ok": False, "code": "execution_failed", "error": "no such file"}
    return {"ok": True, "value": "x" * args.get("count", 1)}


async def throws(args: dict[str, Any], ctx: signoff.ToolContext) -> str:
    raise ValueError("the disk is full")


def entry(name: str = "read_file", execute: Any = read_file, **more: Any) -> dict[str, Any]:
    fields = {"name": name, "description": "Read a file.", "schema": SCHEMA, "toolset": "files", "capabilities": {}}
    return {**fields, "execute": execute, "scope": "generalist", **more}


def app_of(*tools: dict[str, Any], reducers: Any = (), **actor: Any) -> signoff.App:
    app = signoff.App(model="openai:gpt-5", reducers=reducers)
    app.add(*tools)
    app.actor("ada", **actor)
    return app


async def outcomes(app: signoff.App, *asked: tuple[str, Any], **more: Any) -> list[tuple[str, str]]:
    made = await execute_parallel(app, asked, CTX, **more)
    return [(each.outcome.code, str(each.outcome.value.inline)) for each in made if each.outcome]


async def test_batch_shares_its_budget_and_cuts_each_result() -> None:
    made = await outcomes(app_of(entry(), result_chars=10), *[("read_file", {"count": 50})] * 2)
    assert [text for _, text in made] == ["x" * 5 + "\n[truncated — 50 chars total]"] * 2


async def test_default_budget_is_80000_characters_for_a_batch() -> None:
    made = await execute_parallel(app_of(entry()), [("read_file", {"count": 50})] * 3, CTX)
    assert [each.options.budget_chars for each in made] == [26_666] * 3


async def test_max_result_chars_of_a_tool_is_the_smaller_budget() -> None:
    [(_, text)] = await outcomes(app_of(entry(maxResultChars=3)), ("read_file", {"count": 50}))
    assert text == "xxx\n[truncated — 50 chars total]"


async def test_every_call_has_its_result_in_call_order() -> None:
    app = app_of(entry(), entry("broken", throws))
    asked = [("broken", {}), ("read_file", {"count": 2}), ("nothing", {}), ("read_file", {"count": -1})]
    made = await outcomes(app, *asked)
    assert [code for code, _ in made] == ["execution_failed", "ok", "not_available", "execution_failed"]
    assert "the disk is full" in made[0][1]
    assert made[2][1].startswith("Unknown tool: nothing")
    assert "no such file" in made[3][1]


async def never(context: HookContext) -> bool:
    return False


async def test_unavailable_tool_is_neither_shown_nor_run() -> None:
    app = app_of(entry(), entry("write_file", isAvailable=never))
    assert [tool.name for tool in app.build().definitions(CTX)] == ["read_file", "respond"]
    [(code, text)] = await outcomes(app, ("write_file", {}))
    assert (code, "Tool write_file is not currently available" in text) == ("not_available", True)


@table(("allowed", "shown"), (None, ["read_file", "write_file"]), (["read_file"], ["read_file"]), ([], []))
def test_allowed_tools_are_the_actors_list(allowed: list[str] | None, shown: list[str]) -> None:
    app = app_of(entry(), entry("write_file"), tools=allowed)
    assert [tool.name for tool in app.build().available(CTX)] == shown


async def test_tool_outside_the_list_never_runs() -> None:
    [(code, _)] = await outcomes(app_of(entry(), entry("write_file"), tools=["read_file"]), ("write_file", {}))
    assert code == "not_available"


@pytest.mark.row("E13")
async def test_list_and_filters_of_a_batch_replace_the_actors() -> None:
    app = app_of(entry(), entry("write_file"), entry("mcp__github__search"), tools=["write_file"])
    asked: list[tuple[str, Any]] = [("read_file", {}), ("write_file", {}), ("mcp__github__search", {})]

    async def codes(**more: Any) -> list[str]:
        return [code for code, _ in await outcomes(app, *asked, **more)]

    assert await codes() == ["not_available", "ok", "not_available"]
    assert await codes(allowed=["read_file"]) == ["ok", "not_available", "not_available"]
    assert await codes(filters={"allowed_mcp_servers": ["github"]}) == ["not_available", "ok", "ok"]
    assert (
        await codes(allowed=["mcp__github__search"], filters={"allowed_mcp_tools": {"github": []}})
        == ["not_available"] * 3
    )
    for wrong in ({"allowed": ["raed_file"]}, {"filters": {"allowed_mcp_servers": ["gihtub"]}}):
        with pytest.raises(signoff.ConfigError):
            await codes(**wrong)


@pytest.mark.row("E17")
async def test_batch_as_a_dry_run_calls_no_tool() -> None:
    [(code, text)] = await outcomes(app_of(entry(execute=throws)), ("read_file", {}), dry_run=True)
    assert (code, "read_file" in text) == ("ok", True)


def test_toolset_is_matched_exactly() -> None:
    app = app_of(entry(), entry("send", toolset="mail"), toolset="mail")
    assert [tool.name for tool in app.build().available(CTX)] == ["send"]
    every = app_of(entry(), entry("send", toolset="mail")).build()
    assert [tool.name for tool in every.for_toolset("files", CTX)] == ["read_file"]


@table(("plugins", "shown"), (None, ["read_file", "weather"]), (["sky"], ["read_file", "weather"]), ([], ["read_file"]))
def test_allowed_plugins_gate_the_tools_of_plugins(plugins: list[str] | None, shown: list[str]) -> None:
    app = app_of(entry(), entry("weather", plugin="sky"), **({} if plugins is None else {"allowed_plugins": plugins}))
    assert [tool.name for tool in app.build().available(CTX)] == shown


async def test_capability_without_a_backend_fails_closed() -> None:
    app = app_of(entry(capabilities={"network": ["example.org"]}))
    [(code, _)] = await outcomes(app, ("read_file", {}), backends={})
    assert code == "not_available"


def test_definitions_contain_name_description_and_parameters() -> None:
    [shown, _] = app_of(entry()).build().definitions(CTX)
    assert (shown.name, shown.description) == ("read_file", "Read a file.")
    assert dict(shown.parameters)["properties"] == SCHEMA["properties"]


def count(result: Result, given: ReducerInput) -> Result:
    return signoff.ToolResult(f"{len(str(result.value))} characters")


def fails(result: Result, given: ReducerInput) -> Result:
    raise ValueError("a reducer must not throw")


@table(("reduce", "text"), (count, "50 characters"), (fails, "x" * 10 + "\n[truncated — 50 chars total]"))
async def test_reducer_runs_before_the_cut_and_a_failing_one_changes_nothing(reduce: Any, text: str) -> None:
    app = app_of(entry(maxResultChars=10 if reduce is fails else 20), reducers=[ToolReducer("read_file", reduce)])
    assert await outcomes(app, ("read_file", {"count": 50})) == [("ok", text)]


def test_second_reducer_of_a_tool_is_refused_until_the_first_is_removed() -> None:
    reducers = ReducerRegistry()
    undo = reducers.register(ToolReducer("terminal", BUILT_IN["terminal"]))
    with pytest.raises(signoff.RegistrationError, match="Reducer already registered for tool 'terminal'"):
        reducers.register(ToolReducer("terminal", count))
    undo()
    reducers.register(ToolReducer("terminal", count))
    undo()
    assert reducers.get("terminal") is count


async def git_status(args: dict[str, Any], ctx: signoff.ToolContext) -> str:
    return "On branch main\nChanges not staged for commit:\n" + "".join(f"\tmodified:   f{n}\n" for n in range(40))


async def test_terminal_reducer_shortens_a_git_status() -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    app = app_of(entry("terminal", git_status, schema=schema, reducer="terminal"))
    [(_, text)] = await outcomes(app, ("terminal", {"command": "git status"}))
    assert "40" in text
    assert text.count("modified:") <= 6


async def test_dry_run_runs_nothing_and_shows_the_call() -> None:
    ran = []

    async def note(args: dict[str, Any], ctx: signoff.ToolContext) -> str:
        ran.append(args)
        return "done"

    app = app_of(entry("note", note))
    model = ScriptedModel(lambda request: respond("ok") if results(request) else calls(("note", {"count": 1})))
    async with app.test(model) as test:
        turn = await test.say("note it", dry_run=True)
        [call] = (await turn.result()).calls
        assert "[dry-run] note would be called with: " in str(call.value.inline)
        assert ran == []


async def keep(args: dict[str, Any], ctx: signoff.ToolContext) -> str:
    await ctx.capabilities.storage.write("note.txt", b"milk")
    return (await ctx.capabilities.storage.read("note.txt")).decode()


async def test_tool_gets_its_capability_in_its_context() -> None:
    app = app_of(entry("keep", keep, capabilities=Capabilities(storage=True)))
    assert await outcomes(app, ("keep", {})) == [("ok", "milk")]


async def test_return_direct_ends_the_turn_with_the_value() -> None:
    async with app_of(entry(returnDirect=True)).test(steps([calls(("read_file", {"count": 3}))])) as test:
        result = await (await test.say("read it")).result()
        assert (result.completions, result.parts[0].content.inline) == (1, "xxx")
