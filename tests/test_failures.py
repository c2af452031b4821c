from collections import Counter
from pathlib import Path

import pytest
from failures import Failure, Row, causing_tests, documented_failure, failure_rows
from tables import table

HEAD = "import pytest\n\n\n"
WHOLE = (
    "@pytest.mark.failure('it is away')\n"
    "async def test_away(failure):\n"
    "    failure.assert_seen('it is away')\n"
    "    failure.follow('bring it back')\n"
    "    assert back()\n"
)


def test_every_row_is_caused_by_a_test() -> None:
    rows, caused = {row.words for row in failure_rows()}, {test.words for test in causing_tests()}
    assert len(rows) > 30
    assert rows - caused == set(), "no test causes these: write one, or take the row out where nothing can cause it"
    assert caused - rows == set(), "docs/failures.md has no such rows"


def test_every_row_is_caused_and_listed_once() -> None:
    for words in ([row.words for row in failure_rows()], [test.words for test in causing_tests()]):
        assert {each: count for each, count in Counter(words).items() if count > 1} == {}


def test_every_causing_test_finds_the_words_and_recovers() -> None:
    assert {test.place: test.lacks for test in causing_tests() if test.lacks} == {}


@table(
    ("left_out", "lacks"),
    ("", ""),
    ("    failure.assert_seen('it is away')\n", "the words"),
    ("    failure.follow('bring it back')\n", "the remedy"),
    ("    assert back()\n", "that the remedy helped"),
)
def test_incomplete_causing_test_is_noticed(tmp_path: Path, left_out: str, lacks: str) -> None:
    path = tmp_path / "test_away.py"
    path.write_text(HEAD + WHOLE.replace(left_out, "", 1))
    [found] = causing_tests([path])
    assert (found.words, found.lacks) == ("it is away", lacks)


def test_row_is_parsed_as_written() -> None:
    text = "| you see | it means | do |\n|---|---|---|\n| ``run `a b` `` (log) | Gone. | `bring it` back |\n"
    assert failure_rows(text) == [Row("run `a b`", "Gone.", "`bring it` back")]


def test_words_and_remedies_must_match_the_row() -> None:
    failure = Failure(Row("the store at ... is away", "", "Bring it back."))
    with pytest.raises(AssertionError, match="words come before"):
        failure.follow("Bring it back")
    with pytest.raises(AssertionError, match="does not stand in"):
        failure.assert_seen("the store is away")
    failure.assert_seen("now the store at db:5432 is away, try again")
    with pytest.raises(AssertionError, match="does not say"):
        failure.follow("signoff doctor")
    failure.follow("Bring it back")
    assert failure.done == ["Bring it back"]
    with pytest.raises(ValueError, match="not enough"):
        documented_failure("nobody wrote this")
