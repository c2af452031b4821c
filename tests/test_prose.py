from pathlib import Path

import pytest
from tables import table

from tools.prose import Figures, Passage, passages, sentences


@table(
    "name, text, kind, expected",
    ("page.md", "# Title\n\nFirst line\nof a paragraph.\n\n```\ncode\n```\n| a cell | b |\n", "documents", 3),
    ("code.py", '"""Module."""\n\nX = 1\n"""Field."""\n', "docstrings", 2),
    ("code.py", "# One comment\n# on two lines.\nx = 1\n# Another.\n", "comments", 2),
    ("code.py", "x = 'a message of five words'\ny = 'short'\n", "messages", 1),
    ("code.py", "def test_some_condition(): ...\n", "test names", 1),
    ("en.po", 'msgid "One message of some words"\nmsgstr ""\n', "messages", 1),
    ("page.html", "<p>Visible words of a page</p>", "messages", 1),
)
def test_passages_are_found_by_kind(tmp_path: Path, name: str, text: str, kind: str, expected: int) -> None:
    (tmp_path / name).write_text(text)
    assert [each.kind for each in passages(tmp_path / name)].count(kind) == expected


def test_messages_of_tests_are_not_measured(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    path = tmp_path / "tests" / "code.py"
    path.write_text("x = 'a message of five words'\n")
    assert [*passages(path)] == []


def test_code_in_backticks_counts_as_one_word() -> None:
    assert sentences("Return `a b c` of it. Short.") == ["Return X of it."]


def _figures(kind: str, text: str) -> Figures:
    figures = Figures()
    figures.add(Path("page"), Passage(kind, 1, text), 30)
    return figures


LIMITS = {"docstrings": 2.0, "documents": 2.0}


def test_markers_over_the_limit_are_a_problem() -> None:
    text = "Nobody is told what became of it. " * 3
    assert len(_figures("docstrings", text).problems(LIMITS, 6.0)) == 1
    assert _figures("docstrings", "Return the outcome of the call. " * 3).problems(LIMITS, 6.0) == []


def test_semicolons_over_the_limit_are_a_problem() -> None:
    assert len(_figures("docstrings", "Return the one value; else the other. " * 3).problems(LIMITS, 6.0)) == 1


@pytest.mark.parametrize(("words", "problems"), [(30, 0), (31, 1)])
def test_long_sentence_in_a_document_is_a_problem(words: int, problems: int) -> None:
    assert len(_figures("documents", " ".join(["word"] * words) + ".").problems(LIMITS, 6.0)) == problems
