"""`init`: the files of a first project: a manifest, a tool, a script in the place of a model, and a test."""

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

import typer

from signoff.cli.terminal.options import AsJson
from signoff.cli.terminal.output import Output, run
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import is_tool_name

EXAMPLE_SIGNATURE: Final = "refund_order(order: str, euro: float)"
_VALUES: Final[Mapping[str, str]] = MappingProxyType({"str": "A7", "int": "3", "float": "30.5"})
"""What an example says for a parameter of each type that a script can read out of words."""

_SCRIPT: Final = '''\
# {file}
"""A script in the place of a model, so that nothing needs a key."""

import re

from signoff.testing import Completion, CompletionRequest, ScriptedModel
from signoff.testing import calls, last_user_text, respond, results, text_of

EXAMPLES = [{examples}]
# What is said, the tool that it calls, and the tool's arguments in the order of the groups: a line for each tool.
WISHES = [
    {wish},
]


def react(request: CompletionRequest) -> Completion:
    """Propose what the words ask for, then say what became of it."""
    settled = results(request)
    if settled:
        return respond("; ".join(text_of(part.value) or f"not done: {part.code}" for part in settled))
    for words, tool, kinds in WISHES:
        if found := re.search(words, last_user_text(request), re.IGNORECASE):
            args = {name: kind(said) for (name, kind), said in zip(kinds.items(), found.groups(), strict=True)}
            return calls((tool, args), text="A customer asked for it.")
    return respond(f"No line of WISHES in {file} fits. Say for instance: {EXAMPLES[0]}", "clarifying")


model = ScriptedModel(react, examples=EXAMPLES)
'''


class ToolSignature(NamedTuple):
    """A tool's name and its parameters with their types, in order."""

    name: str
    parameters: dict[str, str]

    @property
    def example(self) -> str:
        """Returns words that the script understands: the name, and a value for each parameter."""
        return " ".join([self.name, *(_VALUES[kind] for kind in self.parameters.values())])

    @property
    def arguments(self) -> dict[str, str | int | float]:
        """Returns the arguments that the example stands for."""
        kinds = {"str": str, "int": int, "float": float}
        return {name: kinds[kind](_VALUES[kind]) for name, kind in self.parameters.items()}


def _read_signature(text: str) -> ToolSignature:
    """Parses `name(parameter: type, ...)`. Raises `ConfigError` for what is no such thing."""
    refusal = f"`{' '.join(text.split())}` is no tool with its parameters: write it like `{EXAMPLE_SIGNATURE}`"
    try:
        [function] = ast.parse(f"async def {text}: ...").body
    except (SyntaxError, ValueError):
        raise ConfigError(refusal) from None
    if not isinstance(function, ast.AsyncFunctionDef) or not is_tool_name(function.name):
        raise ConfigError(refusal)
    given = function.args
    if given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults or function.returns:
        raise ConfigError(refusal)
    parameters = {each.arg: ast.unparse(each.annotation) if each.annotation else "" for each in given.args}
    if len(parameters) < len(given.args):
        raise ConfigError(refusal)
    for name, kind in parameters.items():
        if kind not in _VALUES or name == "ctx":
            kinds = ", ".join(f"`{each}`" for each in _VALUES)
            raise ConfigError(
                f"parameter `{name}` needs one of the types {kinds}, and `ctx` is added: `{EXAMPLE_SIGNATURE}`"
            )
    return ToolSignature(function.name, parameters)


def _make_files(tool: ToolSignature) -> dict[str, str]:
    """Returns the files of a project whose one tool always asks, by their names."""
    name, parameters = tool.name, tool.parameters
    words = name.replace("_", " ").strip() or name
    shown = ", ".join(f"{each} {{{each}}}" for each in parameters)
    typed = ", ".join([*(f"{each}: {kind}" for each, kind in parameters.items()), "ctx: ToolContext"])
    groups = "".join(r" (\S+)" for _ in parameters)
    kinds = ", ".join(f'"{each}": {kind}' for each, kind in parameters.items())
    return {
        "signoff.yaml": f"""\
# signoff.yaml
version: 1
actors:
  clerk: {{model: "scripted:own_script:model", instructions: You help the staff., tools: [{name}]}}
tools:
  {name}:
    handler: own_tools:{name}
    scope: generalist
    effect: "{f"{words}: {shown}" if shown else words}"   # what the approver reads
    requires_approval: true
""",
        "own_tools.py": f'''\
# own_tools.py
from signoff import ToolContext


async def {name}({typed}) -> str:
    """{words.capitalize()}."""
    return f"{words}: {f"{shown}, " if shown else ""}agreed by {{ctx.decided_by or 'rule'}}"
''',
        "own_script.py": _write_script(
            "own_script.py", (tool.example,), f'(r"{re.escape(name)}{groups}", "{name}", {{{kinds}}})'
        ),
        "test_own_tools.py": f'''\
# test_own_tools.py
"""The rule and the tool, without a server, a model or a key."""

import asyncio

from own_tools import {name}

from signoff import load_manifest
from signoff.testing import a_tool_context, run_cases

ARGS = {tool.arguments!r}


def test_somebody_is_asked() -> None:
    """The rule of signoff.yaml."""
    cases = [{{"name": "it asks", "tool": "{name}", "args": ARGS, "expect": "ask"}}]
    results = run_cases(cases, load_manifest("signoff.yaml").policies)
    assert [result.case.name for result in results if not result.passed] == []


def test_the_answer_says_who_agreed() -> None:
    """The handler knows who decided."""
    assert asyncio.run({name}(**ARGS, ctx=a_tool_context(decided_by="bo"))).endswith("agreed by bo")
''',
    }


def _write_script(file: str, examples: Sequence[str], wish: str) -> str:
    quoted = ", ".join(f'"{each}"' for each in examples)
    return _SCRIPT.replace("{file}", file).replace("{examples}", quoted).replace("{wish}", wish)


FILES: Final = {
    "signoff.yaml": """\
# signoff.yaml
version: 1
actors:
  clerk: {model: "scripted:clerk_script:model", instructions: You help the staff of a shop., tools: [give_discount]}
tools:
  give_discount:
    handler: discounts:give_discount
    scope: generalist
    effect: "Give {customer} {percent} % off the next order"
    requires_approval:
      auto_approve_if: "args.percent <= 5"
""",
    "discounts.py": '''\
# discounts.py
from signoff import ToolContext


async def give_discount(customer: str, percent: int, ctx: ToolContext) -> str:
    """Give a customer a discount on the next order."""
    return f"{customer} gets {percent} % off, agreed by {ctx.decided_by or 'rule'}"
''',
    "clerk_script.py": _write_script(
        "clerk_script.py",
        ("give Ana 50 % off", "give Bo 5 % off"),
        r"""(r"give (\w+) (\d+) ?%", "give_discount", {"customer": str, "percent": int})""",
    ),
    "test_discounts.py": '''\
# test_discounts.py
"""The rule and the tool, without a server, a model or a key."""

import asyncio

from discounts import give_discount

from signoff import load_manifest
from signoff.testing import a_tool_context, run_cases


def test_a_small_discount_is_given_at_once_and_a_large_one_asks() -> None:
    """The rule of signoff.yaml."""
    small, large = ({"customer": "Ana", "percent": percent} for percent in (5, 50))
    cases = [
        {"name": "5 % is given at once", "tool": "give_discount", "args": small, "expect": "auto"},
        {"name": "50 % asks somebody", "tool": "give_discount", "args": large, "expect": "ask"},
    ]
    results = run_cases(cases, load_manifest("signoff.yaml").policies)
    assert [result.case.name for result in results if not result.passed] == []


def test_the_answer_says_who_agreed() -> None:
    """The handler knows who decided."""
    said = asyncio.run(give_discount("Ana", 50, a_tool_context(decided_by="bo")))
    assert said == "Ana gets 50 % off, agreed by bo"
''',
}
"""The project's files, by name; the README shows them."""
_FIRST_WORDS: Final = "give Ana 50 % off"


app = typer.Typer(rich_markup_mode=None)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to; this folder if not given.")] = Path(),
    tool: Annotated[
        str, typer.Option(metavar="SIGNATURE", help=f"A tool of your own, such as '{EXAMPLE_SIGNATURE}'.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write a first project: a manifest, a tool that asks people, a script in the place of a model, and a test."""

    async def body(out: Output) -> int:
        own = _read_signature(tool) if tool else None
        written = write_project(folder, _make_files(own) if own else FILES)
        inside = "" if folder == Path() else f"cd {folder}; "
        lines = [f"  {path}" for path in written]
        todo = [
            f"{inside}signoff dev",
            f'signoff ask "{own.example if own else _FIRST_WORDS}"    (in a second terminal)',
        ]
        out.show(
            {"files": [str(path) for path in written]}, "written:", *lines, "next:", *(f"  {each}" for each in todo)
        )
        return 0

    run(body, as_json=as_json)


def write_project(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Writes the files of a first project, by their names; returns them.

    Raises `ConfigError` where one is there, and writes none.
    """
    paths = {folder / name: text for name, text in files.items()}
    there = [path for path in paths if path.exists()]
    if there:
        raise ConfigError(f"`{there[0]}` is there already: name another folder, such as `signoff init shop`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            # Not over one that came meanwhile.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"`{folder}` cannot be written: {error.strerror}") from None
    return list(paths)
