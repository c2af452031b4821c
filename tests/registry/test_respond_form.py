import json
from pathlib import Path
from typing import Any

import pytest
from tables import table
from turn_fixtures import catalog_of

from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import MAX_PARTS
from signoff.contracts.message import PART_TYPES, WITHHELD_PART_TYPES
from signoff.contracts.names import RESPOND
from signoff.registry.actor import Actor
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.respond_form import respond_form

TYPES = (*PART_TYPES, "invoice")
ALONE, AMONG = respond_form(), respond_form(("bank", "law"), TYPES)


@pytest.mark.row("B46")
def test_state_defaults_to_complete() -> None:
    assert ALONE.parse({"text": "done"}) == ("complete", "done", "", ())
    assert ALONE.parse({"text": "which?", "state": "clarifying"}) == ("clarifying", "which?", "", ())
    assert ALONE.parse({"text": "later", "state": "delegated"}) == ("delegated", "later", "", ())
    assert ALONE.offer.name == RESPOND


@pytest.mark.row("B55")
@table(
    ("args", "words"),
    ({}, "`text` is required"),
    ({"text": 1}, "`text` must be of type string"),
    ({"text": "x", "state": "suspended"}, "`state` must be one of"),
    ({"text": "x", "state": "passed"}, "`state` must be one of"),
    ({"text": "x", "passTo": "y"}, "`passTo` is not an argument"),
    ({"text": " \n"}, "`text` is empty"),
    (None, "must be of type object"),
)
def test_invalid_payload_error_names_the_problem(args: Any, words: str) -> None:
    message = ALONE.parse(args)
    assert isinstance(message, str)
    assert words in message


@pytest.mark.row("B61")
def test_pass_to_is_required_exactly_with_the_state_passed() -> None:
    assert AMONG.parse({"text": "ask them", "state": "passed", "passTo": "law"}) == ("passed", "ask them", "law", ())
    rule = "`passTo` is for the state `passed` only; it is one of `bank`, `law`"
    for state, more in (("passed", {}), ("complete", {"passTo": "law"}), ("awaiting", {"passTo": "law"})):
        assert rule in str(AMONG.parse({"text": "x", "state": state, **more}))
    assert "`passTo` must be one of" in str(AMONG.parse({"text": "x", "state": "passed", "passTo": "nobody"}))


@pytest.mark.row("B62")
def test_part_of_an_unknown_type_rejects_the_answer() -> None:
    parts = [{"type": "invoice", "content": {"n": 1}}, {"type": "citation", "content": "page 3"}]
    assert AMONG.parse({"text": "x", "parts": parts}) == (
        "complete",
        "x",
        "",
        (("invoice", {"n": 1}), ("citation", "page 3")),
    )
    for wrong in ("invoice", "approval-request", "approval-response", "nonsense"):
        result = ALONE.parse({"text": "x", "parts": [{"type": wrong, "content": 1}]})
        assert "`parts[0].type` must be one of" in str(result)
    assert "at most" in str(ALONE.parse({"text": "x", "parts": parts[1:] * (MAX_PARTS + 1)}))


@pytest.mark.row("X22")
def test_part_type_is_accepted_in_either_place() -> None:
    ours = {"text": "x", "parts": [{"type": "citation", "content": 1}]}
    for part in (
        {"partType": "citation", "content": 1},
        {"metadata": {"partType": "citation"}, "content": 1},
        {"type": "citation", "metadata": {"partType": "citation"}, "content": 1},
    ):
        assert ALONE.parse({"text": "x", "parts": [part]}) == ALONE.parse(ours)
    assert "metadata" not in ALONE.offer.parameters["properties"]["parts"]["items"]["properties"]


@table(
    ("part", "words"),
    ({"type": "ack", "partType": "error", "content": 1}, "`type` and `partType` mean the same and differ"),
    ({"type": "ack", "metadata": {"partType": "error"}, "content": 1}, "`type` and `partType` mean the same"),
    ({"metadata": {"partType": "nonsense"}, "content": 1}, "`parts[0].type` must be one of"),
    ({"type": "ack", "metadata": {"more": 1}, "content": 1}, "`parts[0].metadata` is not an argument"),
    ("ack", "must be of type object"),
)
def test_unreadable_part_is_rejected_with_its_reason(part: Any, words: str) -> None:
    assert words in str(ALONE.parse({"text": "x", "parts": [part]}))


@pytest.mark.row("X21", "Q6")
def test_foreign_state_keys_are_accepted_and_never_offered() -> None:
    for word in ("state", "turnState", "conversationState"):
        assert ALONE.parse({"text": "x", word: "awaiting"}) == ("awaiting", "x", "", ())
    assert "mean the same and differ" in str(ALONE.parse({"text": "x", "state": "complete", "turnState": "awaiting"}))
    passed = {"text": "x", "conversationState": "passed", "pass_to": "law"}
    assert AMONG.parse(passed) == ("passed", "x", "law", ())
    assert set(AMONG.offer.parameters["properties"]) == {"text", "state", "parts", "passTo"}


def test_catalog_offers_its_part_types_and_the_other_actors() -> None:
    actors = [Actor(name=name, model="scripted") for name in ("desk", "bank")]
    catalog = catalog_of([], actors=actors, part_types=["invoice"])
    offered = catalog.respond("desk").offer.parameters["properties"]
    assert offered["passTo"]["enum"] == ["bank"]
    assert offered["parts"]["items"]["properties"]["type"]["enum"] == list(TYPES)
    assert catalog.hash != catalog_of([], actors=actors).hash


def test_manifest_declares_part_types(tmp_path: Path) -> None:
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text("version: 1\npart_types: [invoice]\n")
    assert load_manifest(manifest).part_types == TYPES
    manifest.write_text("version: 1\npart_types: [ack]\n")
    with pytest.raises(ConfigError, match="part type `ack` exists already"):
        load_manifest(manifest)


def test_manifest_declares_parts_that_need_peer_consent(tmp_path: Path) -> None:
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text("version: 1\npart_types: [invoice]\nrequires_peer_consumes: [invoice, citation]\n")
    assert load_manifest(manifest).requires_peer_consumes == {*WITHHELD_PART_TYPES, "invoice", "citation"}
    manifest.write_text("version: 1\nrequires_peer_consumes: [citatoin]\n")
    with pytest.raises(
        ConfigError, match="names `citatoin`, which is no type of parts; did you mean `citation`"
    ) as caught:
        load_manifest(manifest)
    assert caught.value.context["field"] == "requires_peer_consumes"


@table(
    ("declared", "words"),
    (["response"], "exists already"),
    (["approval-response"], "exists already"),
    (["a", "a"], "exists already"),
    (["No Name"], "is no name"),
)
def test_part_type_names_are_unique_and_valid(declared: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        catalog_of([], part_types=declared)
    assert caught.value.context["field"] == "part_types"


def test_invalid_answer_error_is_short() -> None:
    data = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}
    form = respond_form(data=json.dumps(data))
    found = form.parse({"text": "x", "domainData": {"k" * 50_000: ["x"] * 1_000}})
    assert isinstance(found, str)
    assert f"`domainData.{'k' * 64}...[0]` must be of type integer; " in found
    assert "; and 995 more. Call respond again" in found
    assert len(found) < 1_000
