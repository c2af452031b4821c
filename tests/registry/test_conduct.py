from pathlib import Path
from typing import Any

import pytest
from registry_kit import SCHEMA, a_tool, an_actor
from tables import table

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.registry.catalog import build_catalog
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.registry import ToolRegistry


@pytest.mark.row("X18", "N19")
@table(
    ("fields", "tries"),
    ({}, 1),
    ({"read_only": True}, 3),
    ({"idempotent": True}, 3),
    ({"read_only": True, "attempts": 1}, 1),
    ({"idempotent": True, "attempts": 10}, 10),
    ({"attempts": 1}, 1),
)
def test_repeatable_tool_is_tried_three_times_by_default(fields: dict[str, Any], tries: int) -> None:
    assert a_tool(**fields).tries == tries


@pytest.mark.row("X18", "F40")
@table(
    ("fields", "words"),
    ({"attempts": 2}, "has `attempts` 2, but is neither `read_only` nor `idempotent`"),
    ({"attempts": 0}, "needs `attempts` to be a whole number from 1 to 10, or none"),
    ({"attempts": 11, "read_only": True}, "needs `attempts` to be a whole number from 1 to 10, or none"),
    ({"attempts": True, "read_only": True}, "needs `attempts` to be a whole number from 1 to 10, or none"),
    ({"concurrency": "unsafe"}, "has `concurrency` `unsafe`; allowed: `safe`, `exclusive`"),
    ({"fallbacks": ("other",)}, "has `fallbacks`, but is neither `read_only` nor `idempotent`"),
    ({"fallbacks": ("book_flight",), "read_only": True}, "is its own fallback"),
    ({"fallbacks": ("other", "other"), "read_only": True}, "lists a fallback twice; keep one"),
    ({"fallbacks": tuple(f"t{n}" for n in range(10)), "read_only": True}, "has more than 9 `fallbacks`"),
    ({"fallbacks": ("othr",), "idempotent": True}, "has the unknown fallback `othr`; did you mean `other`?"),
)
def test_unsafe_retries_and_invalid_fallbacks_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        ToolRegistry([a_tool(**fields), a_tool("other")])
    assert words in refused.value.message
    assert refused.value.context["tool_name"] == "book_flight"
    assert refused.value.context["field"] == next(iter(fields))


@table(
    ("tell", "words"),
    ({"audit": ("ran",)}, "`tell` for `audit`, which is neither `requester`, `role:<role>` nor `user:<id>`"),
    ({"requester": ("decide",)}, "tells `requester` the unknown event `decide`; did you mean `decided`?"),
    ({"requester": "ran"}, "needs `tell` to be events by `requester`, `user:<id>` or `role:<role>`"),
)
def test_unknown_recipients_and_events_of_notices_are_refused(tell: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        ToolRegistry([a_tool(tell=tell)])
    assert words in refused.value.message


def test_recipients_of_notices_make_no_approval_stale() -> None:
    told = a_tool(tell={"requester": ["decided", "ran"], "role:audit": ("waiting",)})
    assert told.definition == a_tool().definition
    assert ToolRegistry([told]).hash != ToolRegistry([a_tool()]).hash


@table(("field", "allowed"), ("mode", "`sequential`"), ("on_failure", "`abort_siblings`"))
def test_unknown_call_mode_of_an_actor_is_refused(field: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_catalog(actors=[an_actor(**{field: "sometimes"})])
    assert f"`{field}` `sometimes`" in refused.value.message
    assert allowed in refused.value.message


@table("given", 0, -1, True, 1.5, "80000", 2**20 + 1)
def test_invalid_result_budget_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"needs `result_chars` to be a whole number from 1 to 1048576") as refused:
        build_catalog(actors=[an_actor(result_chars=given)])
    assert (refused.value.context["actor"], refused.value.context["field"]) == ("desk", "result_chars")


@table(
    ("tool", "actor"),
    ({"concurrency": "exclusive"}, {}),
    ({"attempts": 2}, {}),
    ({"fallbacks": ("other",)}, {}),
    ({}, {"mode": "sequential"}),
    ({}, {"on_failure": "abort_siblings"}),
    ({}, {"result_chars": 9_000}),
)
def test_run_options_change_the_catalog_hash_but_no_definition(tool: dict[str, Any], actor: dict[str, Any]) -> None:
    plain = build_catalog(tools=[a_tool(read_only=True), a_tool("other")], actors=[an_actor()])
    other = build_catalog(tools=[a_tool(read_only=True, **tool), a_tool("other")], actors=[an_actor(**actor)])
    assert plain.hash != other.hash
    assert [each.definition for each in plain.tools()] == [each.definition for each in other.tools()]


def test_manifest_sets_the_same_run_options(tmp_path: Path) -> None:
    (tmp_path / "market.py").write_text("async def rates(args: dict, context: object) -> int:\n    return 1\n")
    (tmp_path / "signoff.yaml").write_text(
        f"""
version: 1
actors:
  desk: {{model: "scripted:m:m", mode: sequential, onFailure: abort_siblings, resultChars: 9000}}
tools:
  rates:
    handler: market:rates
    description: Rates of today.
    scope: generalist
    input_schema: {SCHEMA}
    read_only: true
    concurrency: exclusive
    attempts: 2
    fallbacks: [older]
  older:
    handler: market:rates
    description: Older rates.
    scope: generalist
    input_schema: {SCHEMA}
""".replace("True", "true").replace("False", "false")
    )
    catalog = load_manifest(tmp_path / "signoff.yaml")
    rates = catalog.registry.resolve("rates")
    assert rates is not None
    assert (rates.concurrency, rates.attempts, rates.fallbacks) == ("exclusive", 2, ("older",))
    actor = catalog.actor("desk")
    assert (actor.mode, actor.on_failure, actor.result_chars) == ("sequential", "abort_siblings", 9_000)
