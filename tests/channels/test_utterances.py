"""Neither file was used to build the reader.

A phrase that is taught to the reader must also go to `mails/answers.yaml`: the measured set is then no longer held out.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from signoff.channels.answer_text.answer_parser import AnswerSender, ParsedAnswer, parse_answer
from signoff.channels.answer_text.footers import read_mail_answer
from signoff.channels.answer_text.quotes import find_new_text

HERE = Path(__file__).parent / "utterances"


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


def read_row(row: dict[str, Any], names: tuple[str, ...] = ()) -> ParsedAnswer:
    sender = AnswerSender(row["lang"], names, {"K7Q2FM": "Pay 520 EUR"})
    if row["channel"] == "chat":
        return parse_answer(row["text"], sender)
    written = find_new_text(row["text"].split("\n"))
    return read_mail_answer(written.above, written.below, sender)


def names_in(row: dict[str, Any]) -> tuple[str, ...]:
    lines = [line.strip() for line in row["text"].split("\n")[1:]]
    return tuple(line for line in lines if line[:1].isupper() and len(line.split()) <= 3 and line[-1] not in ",.!")


def test_no_deceptive_utterance_is_read_as_an_approval() -> None:
    rows = rows_of("deceptive.jsonl")
    assert len(rows) == 500
    for row in rows:
        for names in ((), names_in(row)):
            assert read_row(row, names).verdict != "approved", row["text"]


def test_no_ordinary_utterance_is_read_as_another_answer() -> None:
    allowed = {"yes": {"approved", None}, "no": {"denied", None}, "ask": {None}}
    rows = rows_of("ordinary.jsonl")
    assert Counter(row["expect"] for row in rows) == {"yes": 250, "no": 150, "ask": 100}
    assert [row["text"] for row in rows if read_row(row, names_in(row)).verdict not in allowed[row["expect"]]] == []


def test_minimum_share_of_ordinary_utterances_is_read() -> None:
    read_as: Counter[tuple[str, str]] = Counter()
    for row in rows_of("ordinary.jsonl"):
        if read_row(row, names_in(row)).verdict is not None:
            read_as[row["channel"], row["expect"]] += 1
    assert read_as["chat", "yes"] >= 56
    assert read_as["chat", "no"] >= 66
    assert read_as["mail", "yes"] >= 25
    assert read_as["mail", "no"] >= 25
