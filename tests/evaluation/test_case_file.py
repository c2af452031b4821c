from pathlib import Path

import pytest
from evaluation_kit import AT, a_call, a_case
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.evaluation.case_file import read_cases, write_cases


def written(folder: Path, text: str) -> Path:
    path = folder / "cases.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_case_is_read_as_written(tmp_path: Path) -> None:
    entries = [
        {"role": "user", "text": text} for text in ("no", "12:30", "${HOME} and\n two lines", "é\t'\"", "- a: b", "")
    ]
    case = a_case(
        a_call(1e20), a_call(70, "ask", "c1.2"), messages=entries, forbid=["verdict"], context={"data": {"n": 1}}
    )
    found, problems = read_cases(written(tmp_path, write_cases([case, case])))
    assert [each.case for each in found] == [case, case]
    assert found[0].where.endswith("cases.yaml:1")
    assert problems == []


def test_forbidden_differences_are_written_out() -> None:
    text = write_cases([a_case(a_call())])
    assert "  forbid: [new, missing, changed, verdict, terms, ending]\n" in text
    assert "prompt_hash_mismatch" not in text


@table(
    ("old", "new", "line", "words"),
    ("verdict: run", "verdit: run", 19, "has an unknown key `verdit`"),
    ("ending: complete", "endng: complete", 0, "unknown key `endng`"),
    ("  ending: complete\n", "", 1, "`ending` of case 1 is missing"),
    ("forbid: [new,", "forbid: [anew,", 5, "must be `new`, `missing`"),
    (f"at: '{AT}'", "at: '2026-11-24T10:00:00'", 13, "must be a time with its zone"),
    (f"at: '{AT}'", "at: soon", 13, "must be a time with its zone"),
)
def test_invalid_case_is_a_sentence_with_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    case = write_cases([a_case(a_call())])
    assert old in case
    found, problems = read_cases(written(tmp_path, case.replace(old, new, 1) + case))
    assert len(found) == 1
    [problem] = problems
    assert words in problem
    assert not line or f"cases.yaml:{line}: " in problem


def test_case_without_completions_is_rejected(tmp_path: Path) -> None:
    _, problems = read_cases(written(tmp_path, write_cases([a_case(completions=[])])))
    assert "case 1 has no completion to play" in problems[0]


@table("text", "", "name: a case\n", "[]\n")
def test_file_without_a_list_of_cases_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="signoff eval record"):
        read_cases(written(tmp_path, text))
