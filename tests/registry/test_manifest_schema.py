from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, page
from jsonschema import Draft202012Validator
from pydantic.alias_generators import to_camel
from tables import table
from test_manifest import BAD, GOOD

from signoff.contracts.errors import ConfigError
from signoff.formats.yaml_file import parse_yaml, read_yaml
from signoff.people.people_file import PersonSection
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.manifest.schema_export import manifest_schema
from signoff.registry.manifest.sections import ActorSection, ManifestSection
from signoff.registry.manifest.tool_section import ToolSection

SCHEMA = Draft202012Validator(manifest_schema())
MANIFESTS = [*sorted((ROOT / "examples").glob("*/signoff.yaml")), *sorted((ROOT / "tests").glob("**/signoff.yaml"))]
STRUCTURAL = (
    *("empty", "list", "no version", "other version", "unknown key", "nearest key", "path type", "yes is text"),
    *("number is not text", "unknown tool key", "no handler", "tool is no mapping", "wrong scope", "not a reference"),
    *("reserved", "reserved in any case", "duration", "policy type", "policy key", "actor key", "limits"),
    *("limits key", "approvers", "rule key", "rule effect", "rule is no mapping", "person's shape"),
)
"""The errors of test_manifest.py that are visible without importing or compiling."""


def problems(data: Any) -> list[str]:
    return [error.message for error in SCHEMA.iter_errors(data)]


def test_manifest_schema_is_valid_json_schema() -> None:
    schema = manifest_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert all(each["additionalProperties"] is False for each in schema["$defs"].values())


@table("path", *MANIFESTS, ids=lambda path: path.parent.name)
def test_every_manifest_of_the_project_is_valid(path: Path) -> None:
    assert len(MANIFESTS) >= 3
    assert problems(read_yaml(path).data) == []


def test_documented_manifest_is_valid_in_every_spelling() -> None:
    documented = page("docs/manifest.md").split("```yaml\n")[1].partition("```")[0]
    assert problems(parse_yaml(documented, "manifest.md").data) == []
    assert problems(parse_yaml(GOOD, "good").data) == []


@table("case", *BAD)
def test_schema_rejects_the_shapes_that_the_loader_rejects(case: str) -> None:
    try:
        data = parse_yaml(BAD[case][0], case).data
    except ConfigError:
        assert case not in STRUCTURAL, "YAML itself is refused before any schema is asked"
    else:
        assert bool(problems(data)) is (case in STRUCTURAL), problems(data)


@pytest.mark.parametrize(
    "name",
    [
        "ManifestSection",
        "Defaults",
        "TurnLimitsSection",
        "ActorSection",
        "ToolSection",
        "ApprovalPolicy",
        "GlobalRule",
        "PersonSection",
        "DelegationSection",
        "ContactPreferencesSection",
        "RouteSection",
        "ShownArguments",
        "TermRule",
    ],
)
def test_every_key_has_a_description_in_every_spelling(name: str) -> None:
    models = (ManifestSection, ActorSection, ToolSection, ApprovalPolicy, GlobalRule, PersonSection)
    properties = manifest_schema()["$defs"][name]["properties"]
    nameless = sorted(key for key, schema in properties.items() if not schema.get("description"))
    assert nameless == [], "give these a description: `Field(..., description=...)`"
    for model in models:
        if model.__name__ == name:
            assert {*model.model_fields, *map(to_camel, model.model_fields)} <= set(properties)
    if name == "ToolSection":
        assert set(ToolSection.key_aliases) <= set(properties)


@pytest.mark.parametrize(
    ("part", "right", "wrong"),
    [
        ("tool", {"execute": "a:b", "scope": "generalist"}, {"scope": "generalist"}),
        ("actor", {"modelSettings": {"seed": 1}}, {"modelSetings": {}}),
        ("policies", [{"name": "a", "rule": "true", "effect": "hide"}], [{"name": "a", "rule": "true"}]),
        (
            "people",
            [{"id": "ana", "delegations": [{"to": "bo", "until": "2030"}]}],
            [{"id": "ana", "delegations": [{}]}],
        ),
    ],
)
def test_each_file_of_a_directory_has_its_own_schema(part: Any, right: Any, wrong: Any) -> None:
    schema = Draft202012Validator(manifest_schema(part))
    assert list(schema.iter_errors(right)) == []
    assert not schema.is_valid(wrong)
