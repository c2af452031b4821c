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
    change: str
    command: str
    printed: str


def examples() -> list[Example]:
    """In order: a change applies to all commands up to the next change."""
    found: list[Example] = []
    change = command = ""
    for block in blocks(PAGE):
        change = block.text if block.language == "diff" else change
        command = block.text.strip() if block.language == "sh" else command
        if block.language == "text":
            found.append(Example(change, command, block.text))
    return found


EXAMPLES = examples()
COMMAND = EXAMPLES[0].command
REMOVED_TOOL = """\
-    tools: [flight_search, book_flight, cancel_booking, refund]
+    tools: [flight_search, book_flight, refund]
"""
NEW_INSTRUCTION = """\
-      You are the travel desk. Search before you book. Say plainly what you did and what you could not do.
+      You are the travel desk. Never book. Say plainly what you did and what you could not do.
"""
SQUEEZED = [
    Example(
        REMOVED_TOOL,
        COMMAND,
        """
        Case|Call|Difference|Was|Now|Why
        cancel booking TD-1|c1.1 cancel_booking|verdict|ask|not_available|\
Unknown tool: cancel_booking; use one of the tools you were given
        calls: 5; would run: 2, be asked: 1, be denied or refused: 2; unrecorded: 0
        cases: 5; differences: 1, forbidden: 1; misfits: 0
        """,
    ),
    Example(
        NEW_INSTRUCTION,
        COMMAND,
        """
        Case|Call|Difference|Was|Now|Why
        find a flight to Lisbon|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        book the 420 euro flight to Lisbon|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        book the 39 euro flight to Porto|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        cancel booking TD-1|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        refund 420 euro for TD-1|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        calls: 5; would run: 2, be asked: 2, be denied or refused: 1; unrecorded: 0
        cases: 5; differences: 5, forbidden: 0; misfits: 0
        """,
    ),
    Example(
        NEW_INSTRUCTION,
        f"{COMMAND} --model manifest",
        """
        Case|Call|Difference|Was|Now|Why
        find a flight to Lisbon|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        book the 420 euro flight to Lisbon|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        book the 420 euro flight to Lisbon|c1.1 book_flight|missing|ask
        book the 420 euro flight to Lisbon|c1.1 flight_search|new|run|requires_approval: the tool needs no approval
        book the 39 euro flight to Porto|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        book the 39 euro flight to Porto|c1.1 book_flight|missing|run
        book the 39 euro flight to Porto|c1.1 flight_search|new|run|requires_approval: the tool needs no approval
        cancel booking TD-1|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        refund 420 euro for TD-1|prompt (warning)|73081e72b5ce8184|282590d2b56a0ebc|other instructions
        calls: 5; would run: 3, be asked: 1, be denied or refused: 1; unrecorded: 2
        cases: 5; differences: 9, forbidden: 4; misfits: 0
        """,
    ),
]
"""Further changes, and their printed columns, separated by `|`."""


def changed_example(folder: Path, change: str) -> Path:
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
    code = await asyncio.to_thread(invoke, command.split()[1:])
    return code, "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())


def test_page_has_an_example_with_and_without_a_change() -> None:
    assert [bool(each.change) for each in EXAMPLES] == [False, True]


@pytest.mark.row("V16")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_documented_output_equals_the_printed_one(
    number: int, clean_env: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES[number]
    changed_example(tmp_path, example.change)
    code, printed = await ran(capsys, example.command)
    assert printed == example.printed
    forbidden = FORBIDDEN.search(printed)
    assert forbidden is not None
    assert code == int(forbidden[1] != "0")


@pytest.mark.parametrize("example", SQUEEZED, ids=["removed tool", "new instruction", "new instruction, own model"])
async def test_change_prints_its_differences(
    example: Example, clean_env: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed_example(tmp_path, example.change)
    code, printed = await ran(capsys, example.command)
    columns = [re.sub(" {2,}", "|", line) for line in printed.splitlines()]
    assert columns[:-1] == [line.strip() for line in example.printed.strip().splitlines()]
    assert code == ("forbidden: 0" not in printed)


async def test_changed_instruction_is_an_error_if_a_case_requires_it(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = SQUEEZED[1]
    example_folder = changed_example(tmp_path, example.change)
    cases = example_folder / "cases.yaml"
    text = cases.read_text(encoding="utf-8")
    for mismatch, expected in (("error", 1), ("ignore", 0)):
        cases.write_text(text.replace("  actor: desk", f"  prompt_hash_mismatch: {mismatch}\n  actor: desk"))
        code, printed = await ran(capsys, example.command)
        assert (code, "prompt" in printed) == (expected, mismatch == "error")
