from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError
from registry_kit import a_call, a_tool, an_actor
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.errors import ConfigError, Refused
from signoff.contracts.person import Person
from signoff.contracts.updates import apply_updates
from signoff.formats.replace import replace
from signoff.people.directory import FixedDirectory, principal_of, turn_context
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.cel_context import context_mapping
from signoff.registry.gates.context_layers import context_layers
from signoff.registry.gates.pipeline import judge
from signoff.registry.results.update_check import accept_updates

NAMES = ("identity", "hard constraints", "directory", "request", "results", "words")
CONTEXT = {"user.costCentre": {"type": "string"}, "project": {"type": "string"}}
LOOSER = {"requires_approval": False, "auto_approve_if": "true", "limits": {"calls": 1_000_000}}
OPEN = {"type": "object", "properties": {"amount": {"type": "number"}}}


def catalog_of(context: Mapping[str, Any], updates: tuple[str, ...]) -> Catalog:
    policy = ApprovalPolicy(auto_approve_if="ctx.user.tier == 'trusted'")
    tool = a_tool("pay", input_schema=OPEN, requires_approval=policy, updates=updates, effect="Pay {amount}")
    route = Route(name="trip", steps=(Step(name="ask", collect={"city": {"type": "string"}}),))
    return build_catalog(tools=[tool], actors=[an_actor(routes=(route,))], context=context)


def layered_text(
    *,
    context: Mapping[str, Any] = CONTEXT,
    attributes: Mapping[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
    updates: tuple[str, ...] = ("project", "city"),
    wished: Mapping[str, Any] | None = None,
    args: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    catalog = catalog_of(context, updates)
    person = Person(id="guest", attributes={"costCentre": "K1"} | dict(attributes or {}))
    asked = turn_context(person, {"project": "p1"} | dict(given or {}))
    user = principal_of(person, FixedDirectory([person]))
    ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=user, extra=asked)
    (tool,) = catalog.tools()
    wishes = {"city": "Porto"}, dict(wished or {})
    taken = accept_updates(tool, catalog.scopes["desk"], catalog.fields, ctx, *wishes).updates
    ctx = replace(ctx, extra=apply_updates(taken, asked))
    seen = context_mapping(ctx, catalog.fields)
    known = {name: seen["user"][name] for name in ("id", "person_id", "name", "tier", "roles", "locale")}
    proposed = {"amount": 20} | dict(args or {})
    found = judge(catalog, ctx, a_call("pay"), proposed, Tally())
    return {
        "identity": (known, seen["tenant"], seen["actor"], seen["session"], seen["turn"]),
        "hard constraints": (catalog.hash, found.kind),
        "directory": seen["user"]["costCentre"],
        "request": seen["project"],
        "results": ctx.extra["data"],
    }


ATTEMPTS: dict[tuple[str, str], dict[str, Any]] = {
    ("hard constraints", "identity"): {"context": CONTEXT | {"user.tier": {"type": "string"}}},
    ("directory", "identity"): {"attributes": {"tier": "trusted", "id": "ana", "roles": ["admin"]}},
    ("directory", "hard constraints"): {"attributes": LOOSER},
    ("request", "identity"): {"given": {"user.tier": "trusted"}},
    ("request", "hard constraints"): {"given": LOOSER},
    ("request", "directory"): {"given": {"user.costCentre": "K2"}},
    ("results", "identity"): {"wished": {"user.tier": "trusted", "user": {"tier": "trusted"}, "tenant": "other"}},
    ("results", "hard constraints"): {"wished": LOOSER},
    ("results", "directory"): {"wished": {"user.costCentre": "K2"}},
    ("results", "request"): {"wished": {"project": "p2"}},
    ("words", "identity"): {"args": {"user": {"id": "ana", "tier": "trusted"}, "ctx": {"tenant": "other"}}},
    ("words", "hard constraints"): {"args": LOOSER},
    ("words", "directory"): {"args": {"user.costCentre": "K2"}},
    ("words", "request"): {"args": {"project": "p2"}},
    ("words", "results"): {"args": {"city": "Rome", "data": {"city": "Rome"}}},
}


REFUSED: dict[tuple[str, str], type[Exception]] = {
    ("hard constraints", "identity"): ConfigError,
    ("request", "identity"): Refused,
    ("request", "directory"): Refused,
}


@pytest.mark.row("P18")
@table(("below", "above"), *ATTEMPTS)
def test_lower_layer_never_overrides_a_higher_one(below: str, above: str) -> None:
    plain = layered_text()
    assert plain["hard constraints"][1] == "ask"
    if (below, above) in REFUSED:
        with pytest.raises(REFUSED[below, above]):
            layered_text(**ATTEMPTS[below, above])
    else:
        assert layered_text(**ATTEMPTS[below, above])[above] == plain[above]


@pytest.mark.row("P18")
def test_every_pair_of_layers_has_an_attempt() -> None:
    pairs = {(below, above) for at, below in enumerate(NAMES) for above in NAMES[:at]}
    assert set(ATTEMPTS) == pairs
    ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=principal_of(*_guest()))
    layers = context_layers(catalog_of(CONTEXT, ("project", "city")), ctx)
    assert [(each.number, each.name) for each in layers] == list(enumerate(NAMES, start=1))
    assert [each.name for each in layers if each.fixed] == ["identity", "hard constraints"]
    assert layers[2].holds == ("user.costCentre",)
    assert layers[3].holds == ("route", "step", "transient", "project")
    assert layers[4].holds == ("data.city", "project")
    assert layers[5].holds == ("args", "messages")
    assert layers[1].holds[0] == "instructions, tools, policies, rules, caps"
    assert [each.set_by for each in layers] == [
        "the gateway, which signs it",
        "the manifest, when it is loaded",
        "the directory of people",
        "the starter of the turn, within `may_set`",
        "tools, within their `updates`",
        "people's and the model's words, texts of results",
    ]


@pytest.mark.row("P18")
def test_each_layer_sets_its_own_values() -> None:
    """Otherwise the attempts above would prove nothing."""
    plain = layered_text()
    assert layered_text(attributes={"costCentre": "K2"})["directory"] == "K2"
    assert layered_text(given={"project": "p2"})["request"] == "p2"
    assert plain["results"] == {"city": "Porto"}


@pytest.mark.row("P18")
def test_identity_and_hard_constraints_are_immutable() -> None:
    catalog = catalog_of(CONTEXT, ("project", "city"))
    user = principal_of(*_guest())
    with pytest.raises(ValidationError):
        user.tier = "trusted"
    with pytest.raises(TypeError):
        catalog.policies["pay"] = catalog.policies["pay"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        catalog.rules = catalog.rules  # type: ignore[misc]
    with pytest.raises(ConfigError, match="no tool may change who the user is"):
        catalog_of(CONTEXT, ("user.costCentre",))


def _guest() -> tuple[Person, FixedDirectory]:
    person = Person(id="guest")
    return person, FixedDirectory([person])
