import csv
from datetime import UTC, datetime
from typing import Any

from history_rig import PEOPLE, SECRET, HistoryRig

from signoff.contracts.approval import CardRow
from signoff.formats.replace import replace
from signoff.gateway.history.similar import compare, find_similar
from signoff.store.store import Store
from signoff.texts.past_lines import COLUMNS, first_line, past_line

AT = datetime(2026, 1, 1, tzinfo=UTC)


def rows(amount: object = "20", to: str = "Zoe", **more: Any) -> list[CardRow]:
    return [
        CardRow(name="amount", label="amount", value=str(amount), format="number"),
        CardRow(name="to", label="to", value=to, **more),
    ]


def differing(now: list[CardRow], *past: list[CardRow]) -> list[str]:
    return [row.name for row in compare(now, past, last=AT, more=False).differing]


def test_number_outside_the_range_and_unseen_value_differ() -> None:
    past = (rows(20), rows("80.5", "Max"))
    assert differing(rows(50, "Max"), *past) == []
    assert differing(rows("80.5"), *past) == []
    assert differing(rows(81), *past) == ["amount"]
    assert differing(rows("19.99", "Eve"), *past) == ["amount", "to"]
    assert differing(rows("-20"), *past) == ["amount"]
    assert differing(rows("nan"), *past) == ["amount"]


def test_truncated_value_always_differs_and_secret_never() -> None:
    assert differing(rows(cut=True), rows(cut=True)) == ["to"]
    assert differing(rows(), rows(cut=True)) == ["to"]
    assert differing(rows(to="hidden", secret=True), rows(to="other", secret=True)) == []


def test_argument_that_no_approval_had_differs() -> None:
    assert differing([*rows(), CardRow(name="note", label="note", value="now")], rows()) == ["note"]


def test_range_spans_all_compared_numbers() -> None:
    (found,) = compare(rows(50), [rows(80), rows(9), rows(100)], last=AT, more=False).ranges
    assert (found.least, found.most) == ("9", "100")


async def test_only_ones_own_approvals_of_the_same_tool_are_similar(store: Store) -> None:
    rig = HistoryRig(store)
    await rig.decided({"amount": 20, "to": "Zoe", "pin": SECRET}, by="ana")
    await rig.decided({"amount": 80, "to": "Zoe"}, by="ana")
    await rig.decided({"amount": 900, "to": "Eve"}, by="bo")
    await rig.decided({"amount": 900, "to": "Eve"}, by="ana", verdict="denied")
    await rig.decided({"amount": 900, "to": "Eve"}, by="ana", tool="gift")
    await rig.index()
    request = (await rig.deps.requests.load((await rig.asked({"amount": 90, "to": "Eve", "pin": SECRET})).id)).request
    people = {each.id: each for each in PEOPLE}
    found = await find_similar(rig.deps, request, people["ana"])
    assert found is not None
    assert (found.count, found.more) == (2, False)
    assert [row.name for row in found.differing] == ["amount", "to"]
    assert [(each.least, each.most) for each in found.ranges] == [("20", "80")]
    other = await find_similar(rig.deps, request, people["bo"])
    assert other is not None
    assert (other.count, [row.name for row in other.differing]) == (1, ["amount"])
    assert await find_similar(rig.deps, request, people["eve"]) is None


async def test_cell_that_a_spreadsheet_would_run_is_quoted(store: Store) -> None:
    rig = HistoryRig(store)
    await rig.decided({"amount": 20, "to": "Zoe"})
    await rig.index()
    (past,) = (await rig.find("ana")).decisions
    for sign in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20":
        line = past_line(replace(past, effect=f"{sign}cmd|' /C calc'!A0"), "csv")
        assert f"'{sign}cmd" in line
    assert '"a;=cmd"' in past_line(replace(past, effect="a;=cmd"), "csv")
    assert next(csv.reader([first_line("csv")])) == list(COLUMNS)
    assert first_line("jsonl") == ""
