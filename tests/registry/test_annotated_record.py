from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.approvals.redaction import HIDDEN
from signoff.registry.results.output_check import declared_value
from signoff.registry.tool_result import (
    AnnotatedRecord,
    Annotations,
    RecordField,
    ToolResult,
    copy_record,
    for_model,
    for_record,
    select_slots,
)

RECORD = AnnotatedRecord(
    {
        "fare": RecordField(
            120, Annotations(tier="anchored", temporal="local", slots={"acme.icon": "bus", "other.x": 1})
        ),
        "margin": RecordField(0.3, Annotations(privacy="private")),
        "passport": RecordField("X123", Annotations(privacy="secret")),
    }
)
PRIVACY = st.sampled_from(["public", "private", "secret", "Public", "", "hidden"])


@pytest.mark.row("B35")
def test_record_field_has_a_value_and_annotations() -> None:
    fare = RECORD.fields["fare"]
    assert (fare.value, fare.annotations.tier, fare.annotations.temporal) == (120, "anchored", "local")
    assert select_slots(RECORD, ("acme",)).fields["fare"].annotations.slots == {"acme.icon": "bus"}
    assert select_slots(RECORD, ()).fields["fare"].annotations.slots == {}
    assert select_slots(RECORD, ()).fields["fare"].annotations.tier == "anchored"
    assert RecordField(1).annotations == Annotations()


def test_model_reads_public_fields_and_the_log_hides_secret_ones() -> None:
    assert for_model(RECORD).values == {"fare": 120}
    assert for_record(RECORD).values == {"fare": 120, "margin": 0.3, "passport": HIDDEN}


@given(st.dictionaries(st.text(), st.tuples(st.text(min_size=9), PRIVACY)))
def test_field_not_marked_public_is_withheld_from_the_model(fields: dict[str, tuple[str, Any]]) -> None:
    record = AnnotatedRecord({n: RecordField(v, Annotations(privacy=p)) for n, (v, p) in fields.items()})
    assert set(for_model(record).fields) == {name for name, (_, privacy) in fields.items() if privacy == "public"}
    recorded = for_record(record).values
    assert {name for name in recorded if recorded[name] != HIDDEN} == {
        name for name, (_, privacy) in fields.items() if privacy in ("public", "private")
    }


def test_fields_are_kept_dropped_and_masked_by_name() -> None:
    assert RECORD.only(("fare", "nothing")).values == {"fare": 120}
    assert list(RECORD.without(("fare",)).fields) == ["margin", "passport"]
    assert RECORD.mask(("fare",)).values == {"fare": HIDDEN, "margin": 0.3, "passport": "X123"}
    assert RECORD.mask(("fare",)).fields["fare"].annotations == RECORD.fields["fare"].annotations
    assert RECORD.values == {"fare": 120, "margin": 0.3, "passport": "X123"}


def test_copy_of_a_record_shares_no_mutable_value() -> None:
    seats, slot = [1, 2], {"deep": [1]}
    record = AnnotatedRecord({"seats": RecordField(seats, Annotations(slots={"acme.x": slot}))})
    other = copy_record(record)
    seats.append(3)
    slot["deep"].append(2)
    assert other.values == {"seats": [1, 2]}
    assert other.fields["seats"].annotations.slots == {"acme.x": {"deep": [1]}}


@table("fields", None, [1], {"a": 1}, {1: RecordField(1)}, {"a": RecordField(1, None)})
def test_malformed_record_is_not_copied(fields: Any) -> None:
    with pytest.raises(TypeError):
        copy_record(AnnotatedRecord(fields))


def test_output_schema_applies_to_the_whole_record() -> None:
    assert declared_value(ToolResult(RECORD)) == RECORD.values
    assert declared_value(ToolResult(RECORD, {"own": 1})) == {"own": 1}
