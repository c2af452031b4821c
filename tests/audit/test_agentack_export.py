import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.audit.agentack_export import trace
from signoff.audit.record import Record
from signoff.contracts.errors import Refused

KINDS = ("request", "revision", "in_doubt", "ending", "auto", "grant", "execution", "outcome", "decision")
NAMES = ("approval", "revision", "digest", "state", "code", "approvers", "grant_ttl", "effect", "tool", "refused")
JSON = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


def a_record(kind: str, facts: Any) -> Record:
    names = {"stream": "turn/main/s/t", "seq": 1, "key": "k", "tenant": "main", "subject": "ana", "prev": ""}
    return Record(**names, kind=kind, at="2026-11-24T09:00:00.000000+00:00", data=json.dumps(facts), written_at=0)


@table(
    ("kind", "facts"),
    ("request", {}),
    ("auto", {"approval": "a"}),
    ("execution", {}),
    ("ending", {"approval": 3}),
    ("grant", {"digest": "d"}),
)
def test_unreadable_entry_is_refused_by_its_number(kind: str, facts: Any) -> None:
    """A trace without it would be a different turn."""
    with pytest.raises(Refused, match=rf"record 1 of `turn/main/s/t` is no `{kind}` that can be read"):
        trace([a_record(kind, facts)])


@given(kind=st.sampled_from(KINDS), facts=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6))
def test_any_facts_give_a_trace_or_a_refusal(kind: str, facts: dict[str, Any]) -> None:
    try:
        lines = trace([a_record(kind, facts)])
    except Refused as refusal:
        lines = [json.dumps(refusal.message)]
    assert all(json.loads(line) for line in lines)
