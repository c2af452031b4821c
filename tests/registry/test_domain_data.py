import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_kit import an_actor
from tables import table
from turn_fixtures import TurnRig, catalog_of

from signoff.contracts.errors import ConfigError
from signoff.registry.catalog import build_catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.results.domain_data import DomainMerge, merge_data
from signoff.testing.scripted_model import calls

TRIP: dict[str, Any] = {
    "type": "object",
    "properties": {"cities": {"type": "array", "items": {"$ref": "#/$defs/City"}}, "budget": {"type": "number"}},
    "additionalProperties": False,
    "$defs": {"City": {"type": "string", "minLength": 2}},
}
MERGES: tuple[DomainMerge, ...] = ("replace", "append", "deep-merge")
JSON = st.recursive(
    st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
)


@pytest.mark.row("B58")
@table(
    ("how", "before", "new", "expected"),
    ("replace", {"a": 1, "b": [1]}, {"b": [2]}, {"b": [2]}),
    ("append", {"a": 1, "b": [1]}, {"b": [2]}, {"a": 1, "b": [1, 2]}),
    ("append", [1], [2], [1, 2]),
    ("append", {"a": {"x": [1]}}, {"a": {"x": [2]}}, {"a": {"x": [2]}}),
    ("append", {"a": 1}, {"a": [2]}, {"a": [2]}),
    ("deep-merge", {"a": {"x": 1, "y": 1}, "b": [1]}, {"a": {"y": 2}, "b": [2]}, {"a": {"x": 1, "y": 2}, "b": [2]}),
    ("deep-merge", {"a": {"x": {"y": 1}}}, {"a": {"x": {"z": 2}}}, {"a": {"x": {"y": 1, "z": 2}}}),
    ("deep-merge", [1], [2], [2]),
    ("deep-merge", {"a": 1}, {"a": {"x": 2}}, {"a": {"x": 2}}),
)
def test_data_is_merged_with_the_declared_mode(how: DomainMerge, before: Any, new: Any, expected: Any) -> None:
    kept = copy.deepcopy((before, new))
    assert merge_data(before, new, how) == expected
    assert (before, new) == kept


@given(JSON, JSON, st.sampled_from(MERGES))
def test_merge_keeps_all_new_data(before: Any, new: Any, how: DomainMerge) -> None:
    assert merge_data(None, new, how) == new
    after = merge_data(before, new, how)
    if isinstance(new, dict):
        assert isinstance(after, dict)
        assert after.keys() == (
            new.keys() | before.keys() if how != "replace" and isinstance(before, dict) else new.keys()
        )


@pytest.mark.row("B58")
def test_domain_schema_is_part_of_respond_and_validated() -> None:
    catalog = build_catalog(actors=[an_actor(domain_data=TRIP, domain_merge="append"), an_actor("other")])
    form, other = catalog.respond("desk"), catalog.respond("other")
    answer = {"text": "x", "domainData": {"cities": ["Porto"], "budget": 40}}
    after = {"cities": ["Lisbon", "Porto"], "budget": 40}
    assert form.parse(answer, {"cities": ["Lisbon"]}) == ("complete", "x", "", (("domain-data", after),))
    assert form.parse({"text": "x"}, {"cities": ["Lisbon"]}) == ("complete", "x", "", ())
    assert "`domainData.cities[0]` must have at least 2 characters" in str(
        form.parse({"text": "x", "domainData": {"cities": ["P"]}})
    )
    assert "`domainData.town` is not an argument" in str(form.parse({"text": "x", "domainData": {"town": 1}}))
    part = {"text": "x", "parts": [{"type": "domain-data", "content": 1}]}
    assert "`parts[0].type` must be one of" in str(form.parse(part))
    assert not isinstance(other.parse(part), str)
    assert "`domainData` is not an argument" in str(other.parse(answer))


@table(
    ("fields", "words"),
    ({"domain_data": {"type": "thing"}}, "is not valid JSON Schema 2020-12"),
    ({"domain_data": {"$ref": "#/$defs/Gone"}}, "Gone"),
    ({"domain_data": TRIP, "domain_merge": "sometimes"}, "`sometimes` is no `domain_merge`"),
)
def test_invalid_domain_schema_is_an_error_at_build(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match="actor `desk` cannot have that") as caught:
        build_catalog(actors=[an_actor(**fields)])
    assert words in caught.value.message


def test_manifest_declares_domain_data_and_the_hash_covers_it(tmp_path: Path) -> None:
    text = "version: 1\ndefaults: {model: 'scripted:x:y'}\nactors:\n  desk:\n"
    hashes = []
    for more in (
        "    domainData: {type: array}\n    domainMerge: append\n",
        "    domain_data: {type: array}\n",
        "    {}\n",
    ):
        (tmp_path / "signoff.yaml").write_text(text + more)
        catalog = load_manifest(tmp_path / "signoff.yaml")
        hashes.append(catalog.hash)
    assert len(set(hashes)) == 3
    (tmp_path / "signoff.yaml").write_text(text + "    domain_data: {type: thing}\n")
    with pytest.raises(ConfigError, match=r"signoff\.yaml:5: actor `desk` cannot have that"):
        load_manifest(tmp_path / "signoff.yaml")


@pytest.mark.row("B58")
async def test_answer_of_a_turn_brings_the_merged_data(turn_rig: TurnRig) -> None:
    actor = an_actor(model="scripted", domain_data=TRIP, domain_merge="append")
    wrong, right = (calls(("respond", {"text": "Noted.", "domainData": {"cities": [c]}})) for c in ("P", "Porto"))
    catalog = catalog_of([], actors=[actor])
    async with turn_rig.running(catalog, [wrong, right]) as turns:
        result = await turns.signoff.result(await turns.start(context={"data": {"cities": ["Lisbon"]}}))
    assert (result.state, result.completions) == ("complete", 2)
    assert [(part.type, part.content.inline) for part in result.parts] == [
        ("response", "Noted."),
        ("domain-data", {"cities": ["Lisbon", "Porto"]}),
    ]
