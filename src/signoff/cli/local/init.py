"""`init`: writes a first project: a program or a manifest, a tool that needs approval, and a test."""

import ast
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
"""Example values for the parameter types that a script can read from text."""

_SCRIPT: Final = '''\
# {file}
"""A scripted model, which needs no key."""

import re

from signoff.testing import Completion, CompletionRequest, ScriptedModel
from signoff.testing import calls, last_user_text, respond, results, text_of

EXAMPLES = [{examples}]
# One line per tool: the words, the tool, and its arguments in the order of the groups.
WISHES = [
    {wish},
]


def react(request: CompletionRequest) -> Completion:
    """Propose the call for the words, then report its outcome."""
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
        """A message for the script: the name, and a value per parameter."""
        return " ".join([self.name, *(_VALUES[kind] for kind in self.parameters.values())])

    @property
    def arguments(self) -> dict[str, str | int | float]:
        kinds = {"str": str, "int": int, "float": float}
        return {name: kinds[kind](_VALUES[kind]) for name, kind in self.parameters.items()}


def _read_signature(text: str) -> ToolSignature:
    """Parse `name(parameter: type, ...)`. Raises `ConfigError` for any other text."""
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


def _program_of(tool: ToolSignature) -> dict[str, str]:
    name, parameters = tool.name, tool.parameters
    words = name.replace("_", " ").strip() or name
    shown = ", ".join(f"{each} {{{each}}}" for each in parameters)
    typed = ", ".join([*(f"{each}: {kind}" for each, kind in parameters.items()), "ctx: signoff.ToolContext"])
    effect = f"{words}: {shown}" if shown else words
    return {
        "own_tools.py": f'''\
# own_tools.py
import signoff

app = signoff.App()


@app.tool(effect="{effect}", requires_approval=True)
async def {name}({typed}) -> str:
    """{words.capitalize()}."""
    return f"{words}: {f"{shown}, " if shown else ""}approved by {{ctx.decided_by or 'policy'}}"


app.actor("clerk", model="openai:gpt-5", instructions="You help the staff.", tools=[{name}])

if __name__ == "__main__":
    app.run()
''',
        "test_own_tools.py": _TEST.format(
            file="own_tools",
            tool=name,
            cases=f'    cases = [{{"name": "it asks", "tool": "{name}", "args": {tool.arguments!r}, "expect": "ask"}}]',
            title="call_asks_an_approver",
            call=f'{name}(**{tool.arguments!r}, ctx=a_tool_context(decided_by="bo"))',
        ),
    }


def _write_script(file: str, examples: Sequence[str], wish: str) -> str:
    quoted = ", ".join(f'"{each}"' for each in examples)
    return _SCRIPT.replace("{file}", file).replace("{examples}", quoted).replace("{wish}", wish)


_TEST: Final = '''\
# test_{file}.py
"""The policy and the tool, without a server, a model or a key."""

import asyncio

from {file} import app, {tool}

from signoff.testing import a_tool_context, run_cases


def test_{title}() -> None:
{cases}
    results = run_cases(cases, app.build().policies)
    assert [result.case.name for result in results if not result.passed] == []


def test_result_names_the_approver() -> None:
    assert asyncio.run({call}).endswith("approved by bo")
'''
PROGRAM: Final = {
    "refunds.py": '''\
# refunds.py
import signoff

app = signoff.App()


@app.tool(effect="Refund {amount} EUR to {customer}", auto_approve_if="args.amount <= 10.0")
async def refund(customer: str, amount: float, ctx: signoff.ToolContext) -> str:
    """Refund a customer."""
    return f"refunded {amount} to {customer}, approved by {ctx.decided_by or 'policy'}"


app.actor("clerk", model="openai:gpt-5", instructions="You help the staff of a shop.", tools=[refund])

if __name__ == "__main__":
    app.run()
''',
    "test_refunds.py": _TEST.format(
        file="refunds",
        tool="refund",
        cases="""\
    small, large = {"customer": "ana", "amount": 5.0}, {"customer": "ana", "amount": 50.0}
    cases = [
        {"name": "5 EUR are refunded at once", "tool": "refund", "args": small, "expect": "auto"},
        {"name": "50 EUR ask an approver", "tool": "refund", "args": large, "expect": "ask"},
    ]""",
        title="small_refund_runs_and_a_large_one_asks",
        call='refund("ana", 50.0, a_tool_context(decided_by="bo"))',
    ),
}
"""The files of a first program, by name; the README shows them."""
MANIFEST: Final = {
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
        {"name": "50 % asks an approver", "tool": "give_discount", "args": large, "expect": "ask"},
    ]
    results = run_cases(cases, load_manifest("signoff.yaml").policies)
    assert [result.case.name for result in results if not result.passed] == []


def test_the_answer_says_who_agreed() -> None:
    """The handler knows who decided."""
    said = asyncio.run(give_discount("Ana", 50, a_tool_context(decided_by="bo")))
    assert said == "Ana gets 50 % off, agreed by bo"
''',
}
"""The files of a first project with a manifest, by name."""


app = typer.Typer(rich_markup_mode=None)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to; this folder if not given.")] = Path(),
    tool: Annotated[
        str, typer.Option(metavar="SIGNATURE", help=f"A tool of your own, such as '{EXAMPLE_SIGNATURE}'.")
    ] = "",
    yaml: Annotated[bool, typer.Option("--yaml", help="A manifest instead of a program.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a first program, with a tool that asks people, and its test."""

    async def body(out: Output) -> int:
        if yaml and tool:
            raise ConfigError("`--tool` writes a program, and `--yaml` a manifest: use one of the two")
        own = _read_signature(tool) if tool else None
        files = _program_of(own) if own else MANIFEST if yaml else PROGRAM
        first, words = ("own_tools:app", own.example) if own else ("refunds:app", "refund ana 50")
        if yaml:
            first, words = "", "give Ana 50 % off"
        written = write_project(folder, files)
        inside = "" if folder == Path() else f"cd {folder}; "
        todo = [f"{inside}signoff dev {first}".rstrip(), f'signoff ask "{words}"    (in a second terminal)']
        lines = ["written:", *(f"  {path}" for path in written), "next:", *(f"  {each}" for each in todo)]
        out.show({"files": [str(path) for path in written]}, *lines)
        return 0

    run(body, as_json=as_json)


def write_project(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Raises `ConfigError` if a file exists, and writes none."""
    paths = {folder / name: text for name, text in files.items()}
    there = [path for path in paths if path.exists()]
    if there:
        raise ConfigError(f"`{there[0]}` is there already: name another folder, such as `signoff init shop`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            # Never overwrite a file that appeared since the check.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"`{folder}` cannot be written: {error.strerror}") from None
    return list(paths)
