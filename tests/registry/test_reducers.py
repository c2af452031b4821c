import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from registry_kit import a_tool, an_actor
from tables import table

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.results.reducers import BUILT_IN, ReducerRegistry, ToolReducer, reduce_result
from signoff.registry.tool_result import ReducerInput, Result, ToolFailure, ToolResult

NOTHING = ReducerInput({})


def shout(result: Result, given: ReducerInput) -> Result:
    if isinstance(result, ToolFailure):
        return ToolFailure(result.message.upper())
    return ToolResult(f"{result.value.upper()} {given.turn_count} {sorted(given.args)}", {"other": 1}, 99.0)


def same(result: Result, given: ReducerInput) -> Result:
    return result


async def later(result: Result, given: ReducerInput) -> Result:
    return result


def _catalog(reducers: ReducerRegistry | None) -> Catalog:
    return build_catalog(tools=[a_tool("look"), a_tool("pay")], actors=[an_actor()], reducers=reducers)


@pytest.mark.row("E38")
def test_second_reducer_for_a_tool_is_an_error() -> None:
    reducers = ReducerRegistry()
    reducers.register(ToolReducer("look", shout))
    with pytest.raises(RegistrationError, match=r"^Reducer already registered for tool 'look'$") as raised:
        reducers.register(ToolReducer("look", same))
    assert raised.value.context["tool_name"] == "look"
    reducers.register(ToolReducer("Look", same))
    assert (reducers.get("look"), reducers.get("Look"), reducers.get("lo")) == (shout, same, None)


@pytest.mark.row("E38", "N16")
def test_registration_removes_only_itself() -> None:
    reducers = ReducerRegistry()
    first = reducers.register(ToolReducer("look", shout))
    first()
    assert reducers.get("look") is None
    second = reducers.register(ToolReducer("look", shout))
    first()
    first()
    assert reducers.get("look") is shout
    second()
    assert reducers.get("look") is None


@pytest.mark.row("E39")
@table(
    ("wrong", "words"),
    (later, "but it is `async def`"),
    (None, "but it is no function"),
    (lambda result: result, "does not take"),
)
def test_invalid_reducer_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(RegistrationError, match=words):
        ReducerRegistry().register(ToolReducer("look", wrong))
    with pytest.raises(RegistrationError, match="is no tool's name"):
        ReducerRegistry().register(ToolReducer("no tool", same))


@pytest.mark.row("E43")
def test_catalog_keeps_the_reducers_it_was_built_with() -> None:
    assert dict(_catalog(None).reducers) == {}
    reducers = ReducerRegistry()
    undo = reducers.register(ToolReducer("look", shout))
    catalog = _catalog(reducers)
    undo()
    reducers.register(ToolReducer("pay", same))
    assert dict(catalog.reducers) == {"look": shout}
    reducers.register(ToolReducer("lok", same))
    with pytest.raises(ConfigError, match=r"unknown tool `lok`; did you mean `look`\?"):
        _catalog(reducers)


@pytest.mark.row("E21")
def test_reducer_changes_only_the_text() -> None:
    given = ReducerInput({"b": 1, "a": 2}, 3)
    assert reduce_result(shout, ToolResult("abc", {"n": 1}, 0.5), given) == ToolResult(
        "ABC 3 ['a', 'b']", {"n": 1}, 0.5
    )
    failure = ToolFailure("no such row", "input_invalid")
    assert reduce_result(shout, failure, given) == ToolFailure("NO SUCH ROW", "input_invalid")
    assert reduce_result(None, failure, given) is failure
    assert NOTHING.turn_count == 0


@pytest.mark.row("E21", "E39")
@table("result", ToolResult("abc", 1, 0.5), ToolFailure("abc"))
@table(
    "answer",
    None,
    "abc",
    ToolResult(3),
    ToolFailure(3),
    KeyError("x"),
    SystemExit(1),
    {"value": "x"},  # type: ignore[arg-type]
)
def test_failing_reducer_leaves_the_result_unchanged(
    result: Result, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(result: Result, given: ReducerInput) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert reduce_result(wrong, result, NOTHING) is result
    assert len(caplog.messages) == 1


def test_reducer_cannot_turn_a_failure_into_a_success() -> None:
    failure, result = ToolFailure("it broke"), ToolResult("it is done")
    assert reduce_result(lambda *_: result, failure, NOTHING) is failure
    assert reduce_result(lambda *_: failure, result, NOTHING) is result


def _terminal(text: str, command: Any) -> str:
    short = BUILT_IN["terminal"](ToolResult(text, {"exit": 0}, 0.1), ReducerInput({"command": command}))
    assert isinstance(short, ToolResult)
    assert (short.structured, short.cost) == ({"exit": 0}, 0.1)
    return str(short.value)


@pytest.mark.row("E40")
@table("command", "git status --short", "git -C /repo status -s", ["git", "status", "--porcelain"])
def test_terminal_counts_changed_files(command: Any) -> None:
    lines = ["## main", " M a.py", "M  b.py", "?? c.py", " D d.py", "A  e.py", "R  f.py -> g.py", "?? h.py"]
    assert _terminal("\n".join(lines) + "\n" * 99, command).splitlines() == [
        "7 changed: modified=2, untracked=2, deleted=1, added=1, renamed=1",
        "- modified: a.py",
        "- modified: b.py",
        "- untracked: c.py",
        "- deleted: d.py",
        "- added: e.py",
        "... and 2 more",
    ]


@pytest.mark.row("E40")
def test_terminal_reads_the_long_format_of_git_status() -> None:
    long = (
        "On branch main\nChanges not staged for commit:\n  (use this)\n\tmodified:   a.py\n\tdeleted:    b.py\n\n"
        "Untracked files:\n  (use that to include in what will be committed)\n\tc.py\n\n"
        "no changes added to commit (use one or the other)\n"
    )
    assert _terminal(long, "git status").splitlines() == [
        "3 changed: modified=1, deleted=1, untracked=1",
        "- modified: a.py",
        "- deleted: b.py",
        "- untracked: c.py",
    ]
    clean = "On branch main\nnothing to commit, working tree clean\n"
    assert _terminal(clean, "git status") == clean
    assert _terminal(" M a.py\n" * 9, "git diff --stat") == " M a.py\n" * 9
    assert _terminal("x", "git") == "x"


@pytest.mark.row("E40")
@table("command", "pytest -q", "cd app && npm run test", "go test ./...", "make test")
def test_terminal_keeps_failures_and_the_summary_of_a_test_run(command: str) -> None:
    text = "collecting\n.....\nFAILED tests/a.py::test_x\nE   ValueError: no\nok  pkg\n== 1 failed, 5 passed in 3s ==\n"
    assert _terminal(text, command).splitlines() == [
        "FAILED tests/a.py::test_x",
        "E   ValueError: no",
        "== 1 failed, 5 passed in 3s ==",
    ]


@pytest.mark.row("E40")
@table("command", "npm ci", "pip install x", "uv pip install x", "yarn add x", "cargo add x")
def test_terminal_keeps_the_results_of_an_install(command: str) -> None:
    text = "fetching\nnpm warn old\nadded 3 packages\nremoved 1 package\nin 3 s\nError: disk full\n"
    assert _terminal(text, command).splitlines() == [
        "npm warn old",
        "added 3 packages",
        "removed 1 package",
        "Error: disk full",
    ]


@pytest.mark.row("E40")
@table("command", "cat log", "pytest -q", "")
def test_terminal_keeps_both_ends_of_a_long_output(command: str) -> None:
    lines = [f"line {number} {'é' * 40}" for number in range(200)]
    short = _terminal("\n".join(lines), command).splitlines()
    assert short == [*lines[:40], "[... 140 lines left out ...]", *lines[-20:]]
    assert _terminal("x\n" * 4096, command) == "x\n" * 4096
    assert _terminal("y" * 9000, command) == "y" * 9000


@pytest.mark.row("E40", "E41", "E42")
@table("name", *sorted(BUILT_IN))
def test_built_in_reducers_leave_failures_unchanged(name: str) -> None:
    failure = ToolFailure("FAILED\n" * 9000)
    assert BUILT_IN[name](failure, ReducerInput({"command": "pytest"})) is failure


@pytest.mark.row("E41")
def test_read_file_shows_the_first_lines_of_a_whole_file() -> None:
    read, lines = BUILT_IN["read_file"], [f"{number}" for number in range(201)]
    long = ToolResult("\n".join(lines))
    short = read(long, ReducerInput({"path": "a"}))
    assert isinstance(short, ToolResult)
    hint, *rest = str(short.value).split("\n")
    assert rest == lines[:200]
    assert "201 lines" in hint
    whole = ToolResult("\n".join(lines[:200]) + "\n")
    assert read(whole, NOTHING) is whole
    for name in ("lineStart", "lineEnd", "line_start", "line_end"):
        assert read(long, ReducerInput({name: 1})) is long
        assert read(long, ReducerInput({name: None})) == short


@pytest.mark.row("E42")
def test_kanban_list_shows_counts_and_the_newest_open_items() -> None:
    kanban = BUILT_IN["kanban_list"]
    items = [
        {"id": n, "title": f"t{n}", "status": ["open", "done", "doing"][n % 3], "updatedAt": f"2030-01-{n + 1:02}"}
        for n in range(11)
    ]
    short = kanban(ToolResult(json.dumps(items)), NOTHING)
    assert isinstance(short, ToolResult)
    assert str(short.value).splitlines() == [
        "11 items: open=4, done=4, doing=3",
        "newest not done:",
        "- 9 [open] t9",
        "- 8 [doing] t8",
        "- 6 [open] t6",
        "- 5 [doing] t5",
        "- 3 [open] t3",
    ]
    for text in (json.dumps(items[:10]), "no JSON", json.dumps({"a": items}), json.dumps([1] * 11), "[" * 100_000):
        assert kanban(same_text := ToolResult(text), NOTHING) is same_text
    bare = kanban(ToolResult(json.dumps([{}] * 11)), NOTHING)
    assert isinstance(bare, ToolResult)
    assert str(bare.value).splitlines()[::2][0:2] == ["11 items: unknown=11", "- ? [unknown] (no title)"]


CODE = '''
from signoff.registry.tool_result import ReducerInput, Result


async def look() -> str:
    """Look."""
    return "seen"


def short(result: Result, given: ReducerInput) -> Result:
    return result


async def late(result: Result, given: ReducerInput) -> Result:
    return result
'''


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "reducing_handlers.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(given: str) -> Catalog:
        text = f"""\
            version: 1
            actors:
              desk: {{model: "scripted:x:y"}}
            tools:
              look: {{handler: "reducing_handlers:look", scope: generalist, reducer: {given}}}
            """
        (tmp_path / "signoff.yaml").write_text(dedent(text))
        return load_manifest(tmp_path / "signoff.yaml")

    return load


@pytest.mark.row("E43")
def test_manifest_names_a_reducer(manifest: Any) -> None:
    assert dict(manifest("terminal").reducers) == {"look": BUILT_IN["terminal"]}
    assert [each.__name__ for each in manifest('"reducing_handlers:short"').reducers.values()] == ["short"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("shell", ":5: `reducer` of tool `look`: `shell` is neither `terminal`, `read_file`, `kanban_list`"),
        ('"reducing_handlers:nothing"', ":5: `reducer` of tool `look`: module `reducing_handlers` has no `nothing`"),
        ('"reducing_handlers:late"', ":5: `reducer` of tool `look`: tool `look` needs `reducer` to be `def "),
        ("3", "must be text"),
    ],
)
def test_invalid_reducer_in_the_manifest_has_its_line(manifest: Any, given: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        manifest(given)
    assert words in str(raised.value)
