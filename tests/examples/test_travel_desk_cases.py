"""docs/evaluation.md: its examples are run, and print what it shows."""

import asyncio
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from documents import ROOT, blocks

from signoff.cli.main import invoke

PAGE = ROOT / "docs" / "evaluation.md"
FORBIDDEN = re.compile(r"forbidden: (\d+)")


class Example(NamedTuple):
    """A command of the page, the change of the manifest before it, and what it prints."""

    change: str
    command: str
    printed: str


def examples() -> list[Example]:
    """The page's examples, in order: a change holds for all commands up to the next one."""
    found: list[Example] = []
    change = command = ""
    for block in blocks(PAGE):
        change = block.text if block.language == "diff" else change
        command = block.text.strip() if block.language == "sh" else command
        if block.language == "text":
            found.append(Example(change, command, block.text))
    return found


EXAMPLES = examples()


def changed_example(folder: Path, change: str) -> Path:
    """A copy of the travel desk, its manifest changed."""
    example_folder = folder / "examples" / "travel_desk"
    shutil.copytree(ROOT / "examples" / "travel_desk", example_folder, ignore=shutil.ignore_patterns("__pycache__"))
    lines = change.splitlines()
    old, new = ("\n".join(line[1:] for line in lines if line[0] in (" ", mark)) for mark in "-+")
    manifest = example_folder / "signoff.yaml"
    text = manifest.read_text(encoding="utf-8")
    assert not change or text.count(old) == 1
    manifest.write_text(text.replace(old, new) if change else text, encoding="utf-8")
    return example_folder


async def ran(capsys: pytest.CaptureFixture[str], command: str) -> tuple[int, str]:
    """Exit code of a command line, and what it printed, without spaces at the ends of lines."""
    code = await asyncio.to_thread(invoke, command.split()[1:])
    return code, "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())


def test_the_page_has_an_example_of_each_change() -> None:
    changes = [each.change for each in EXAMPLES]
    assert [bool(change) for change in changes] == [False, True, True, True, True]
    assert len({*changes}) == 4


@pytest.mark.row("V16")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_what_the_page_shows_is_what_is_printed(
    number: int, clean_env: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES[number]
    changed_example(tmp_path, example.change)
    code, printed = await ran(capsys, example.command)
    assert printed == example.printed
    forbidden = FORBIDDEN.search(printed)
    assert forbidden is not None
    assert code == int(forbidden[1] != "0")


async def test_another_instruction_is_an_error_where_a_case_says_so(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES[3]
    example_folder = changed_example(tmp_path, example.change)
    cases = example_folder / "cases.yaml"
    text = cases.read_text(encoding="utf-8")
    for mismatch, expected in (("error", 1), ("ignore", 0)):
        cases.write_text(text.replace("  actor: desk", f"  prompt_hash_mismatch: {mismatch}\n  actor: desk"))
        code, printed = await ran(capsys, example.command)
        assert (code, "prompt" in printed) == (expected, mismatch == "error")
