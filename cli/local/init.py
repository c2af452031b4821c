"""`init`: the files of a first project: a manifest, a tool, a script in the place of a model, and a test."""

from pathlib import Path
from typing import Annotated, Final

import typer

from signoff.cli.terminal.options import AsJson
from signoff.cli.terminal.output import Output, run
from signoff.contracts.errors import ConfigError

app = typer.Typer(rich_markup_mode=None)

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
    "clerk_script.py": '''\
# clerk_script.py
"""A script in the place of a model, so that nothing needs a key."""

import re

from signoff.testing import Completion, CompletionRequest, ScriptedModel
from signoff.testing import calls, last_user_text, respond, results, text_of

EXAMPLES = ["give Ana 50 % off", "give Bo 5 % off"]
# What is said, the tool that it calls, and the tool's arguments in the order of the groups: a line for each tool.
WISHES = [
    (r"give (\\w+) (\\d+) ?%", "give_discount", {"customer": str, "percent": int}),
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
    return respond(f"No line of WISHES in clerk_script.py fits. Say for instance: {EXAMPLES[0]}", "clarifying")


model = ScriptedModel(react, examples=EXAMPLES)
''',
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
FIRST_WORDS: Final = "give Ana 50 % off"


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to; this folder if not given.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a first project: a manifest, a tool that asks people, a script in the place of a model, and a test."""

    async def body(out: Output) -> int:
        written = write_project(folder)
        inside = "" if folder == Path() else f"cd {folder}; "
        lines = [f"  {path}" for path in written]
        todo = [f"{inside}signoff dev", f'signoff ask "{FIRST_WORDS}"    (in a second terminal)']
        out.show(
            {"files": [str(path) for path in written]}, "written:", *lines, "next:", *(f"  {each}" for each in todo)
        )
        return 0

    run(body, as_json=as_json)


def write_project(folder: Path) -> list[Path]:
    """Writes the files of a first project; returns them. Raises `ConfigError` where one is there, and writes none."""
    paths = {folder / name: text for name, text in FILES.items()}
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
