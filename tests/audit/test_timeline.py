import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.audit.record import DATA_BYTES, Record
from signoff.audit.timeline import timeline
from signoff.languages.catalogue import language_codes
from signoff.texts.record_entries import _KINDS

KINDS = sorted((*_KINDS, "strange"))
NAMES = (
    "act", "actor", "after", "approval", "approvers", "assurance", "call", "changed", "channel", "code", "count",
    "decisions", "ended", "error", "grant", "id", "key_id", "more", "note", "permit", "quorum", "reason", "records",
    "refused", "removed", "rule", "policy_hash", "private", "session_event", "status", "stop", "tool", "unsigned",
    "verdict",
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
FACTS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=9), JSON, max_size=6)


def a_record(kind: str, data: str) -> Record:
    return Record(
        stream="main.s.t",
        seq=1,
        key="k",
        kind=kind,
        at="2026-11-24T09:00:00.000000+00:00",
        tenant="main",
        subject="ana",
        data=data,
        prev="",
        written_at=0,
    )


@given(kind=st.sampled_from(KINDS), language=st.sampled_from(sorted(language_codes())), facts=FACTS)
def test_any_facts_of_any_kind_have_text(kind: str, language: str, facts: dict[str, Any]) -> None:
    (entry,) = timeline([a_record(kind, json.dumps(facts))], language)
    assert (entry.at, entry.who) == ("2026-11-24 09:00:00", "ana")
    assert entry.what


@table("language", *sorted(language_codes()))
@table(
    ("kind", "facts"),
    ("request", {"quorum": "x"}),
    ("request", {"approvers": 5}),
    ("execution", {"decisions": ["a"]}),
    ("execution", {"decisions": [{"name": "bo"}]}),
    ("policy", {"added": 7}),
)
def test_facts_without_text_are_shown_as_json(kind: str, facts: dict[str, Any], language: str) -> None:
    data = json.dumps(facts)
    before, found, after = timeline([a_record("admin", "{}"), a_record(kind, data), a_record("admin", "{}")], language)
    assert found.what == f"{kind}: {data}"
    assert before.what == after.what != "admin: {}"


def test_too_deeply_nested_data_is_shown_as_json() -> None:
    data = '{"a":' + "[" * 20_000 + "]" * 20_000 + "}"
    assert timeline([a_record("turn", data)])[0].what == f"turn: {data}"


@pytest.mark.parametrize("nested", [1, 9, 200, 2_000])
@pytest.mark.parametrize("language", sorted(language_codes()))
def test_longest_remark_is_rendered_quickly(nested: int, language: str) -> None:
    remark = '{"code": "line", "values": {"detail": ' * nested + '"is late"' + "}}" * nested
    notes = f"[{', '.join([remark] * max(1, (DATA_BYTES - 100) // len(remark)))}]"
    record = a_record("revision", f'{{"notes": {notes}}}')
    entry, spent = timeline([record], language)[0], []
    # The garbage of earlier tests is collected in one of the runs.
    for _ in range(3):
        begun = time.thread_time()
        timeline([record], language)
        spent.append(time.thread_time() - begun)
    assert min(spent) < 0.25
    assert entry.what.startswith("revision:") == (nested == 2_000)
