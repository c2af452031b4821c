import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from registry_kit import SCHEMA, a_tool, an_actor
from tables import table

from signoff.contracts.activity_messages import TurnLimits
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Route, Step
from signoff.registry.catalog import build_catalog
from signoff.registry.catalog_diff import CatalogDiff, catalog_diff
from signoff.registry.catalog_variant import derive
from signoff.registry.normal_form import normal_text

RULES = [GlobalRule(name=name, rule="'x' in tool.tags", effect="hide") for name in ("a", "b")]
BASE: dict[str, Any] = {
    "tools": [a_tool("book", requires_approval=ApprovalPolicy(quorum=2)), a_tool("look")],
    "actors": [an_actor(tools=("book", "look")), an_actor("other")],
    "policies": RULES,
    "people": [Person(id="ana", roles=("finance",))],
    "context": {"project": {"type": "string"}},
}
MORE = {**SCHEMA, "properties": {**SCHEMA["properties"], "seat": {"type": "string"}}}


async def another(args: dict[str, Any], ctx: Any) -> None:
    """Another handler."""


def differences(**changed: Any) -> CatalogDiff:
    return catalog_diff(build_catalog(**BASE), build_catalog(**{**BASE, **changed}))


def with_book(**fields: Any) -> list[Any]:
    return [dataclasses.replace(BASE["tools"][0], **fields), BASE["tools"][1]]


@table(
    ("changed", "fields", "stale"),
    ({"description": "Other words."}, ("description",), False),
    ({"requires_approval": ApprovalPolicy(quorum=3, timeout=60)}, None, False),
    ({"requires_approval": True}, ("requires_approval",), False),
    ({"requires_approval": False}, ("requires_approval",), False),
    ({"tags": ("money",), "timeout": 3.0}, ("tags", "timeout"), False),
    ({"handler": another}, ("handler",), False),
    ({"effect": "Book {flight}"}, ("effect",), True),
    ({"input_schema": MORE}, ("input_schema",), True),
    ({"secrets": ("flight",)}, ("secrets",), True),
    ({"version": "2"}, ("version",), True),
    ({"read_only": True}, ("read_only",), True),
    ({"site": "elsewhere:1"}, (), False),
)
def test_tool_change_lists_fields_and_stale_approvals(
    changed: dict[str, Any], fields: tuple[str, ...] | None, stale: bool
) -> None:
    found = differences(tools=with_book(**changed))
    if fields is None:
        fields = ("requires_approval.quorum", "requires_approval.timeout")
    assert [(change.name, change.what, change.fields) for change in found.changes] == (
        [("book", "changed", fields)] if fields else []
    )
    assert found.stale == (("book",) if stale else ())
    old, new = (build_catalog(**{**BASE, "tools": tools}) for tools in (BASE["tools"], with_book(**changed)))
    assert stale is (old.registry.resolve("book").definition != new.registry.resolve("book").definition)


@table(
    ("changed", "words"),
    ({"tools": [*BASE["tools"], a_tool("new")]}, "+ tool `new`"),
    (
        {"tools": BASE["tools"][:1], "actors": [an_actor(tools=("book",)), an_actor("other")]},
        "- tool `look`; its calls that wait become `not_available`",
    ),
    ({"actors": [an_actor(tools=("look", "book")), an_actor("other")]}, "~ actor `desk`: tools"),
    ({"actors": [*BASE["actors"], an_actor("third")]}, "+ actor `third`"),
    ({"actors": [BASE["actors"][0], an_actor("other", limits=TurnLimits(calls=3))]}, "~ actor `other`: limits"),
    ({"policies": RULES[:1]}, "- policy `b`"),
    ({"policies": [RULES[0], replace(RULES[1], reason="x")]}, "~ policy `b`: reason"),
    ({"policies": RULES[::-1]}, "~ setting `order_of_policies`"),
    ({"default_approvers": ("role:x",)}, "~ setting `default_approvers`"),
    ({"part_types": ["invoice"]}, "~ setting `part_types`"),
    ({"requires_peer_consumes": ["citation"]}, "~ setting `requires_peer_consumes`"),
    ({"context": {"project": {"type": "integer"}}}, "~ context `project`"),
    ({"context": {}}, "- context `project`"),
    ({"people": [Person(id="ana")]}, "~ person `main/ana`: roles"),
    ({"people": [*BASE["people"], Person(id="bo", tenant="t")]}, "+ person `t/bo`"),
)
def test_every_part_of_a_catalog_is_compared(changed: dict[str, Any], words: str) -> None:
    assert words in [change.words for change in differences(**changed).changes]


def test_own_tool_of_an_actor_is_compared_like_any_other() -> None:
    def own(**fields: Any) -> list[Any]:
        step = Step(name="pay", tools=(a_tool("settle", **fields), "look"))
        return [an_actor(routes=(Route(name="buy", steps=(step,)),))]

    old = build_catalog(**{**BASE, "actors": own()})
    new = build_catalog(**{**BASE, "actors": own(effect="Settle {flight}")})
    (change,) = catalog_diff(old, new).changes
    assert (change.name, change.fields, change.stale) == ("settle@desk.buy.pay", ("effect",), True)
    moved = build_catalog(**{**BASE, "actors": [an_actor(routes=(Route(name="buy", steps=(Step(name="pay"),)),))]})
    assert [change.words for change in catalog_diff(old, moved).changes] == [
        "- tool `settle@desk.buy.pay`; its calls that wait become `not_available`",
        "~ actor `desk`: routes",
    ]
    assert normal_text(derive(old)) == normal_text(old)


def test_inserted_rule_is_no_change_of_order() -> None:
    between = [RULES[0], GlobalRule(name="m", rule="true", effect="hide"), RULES[1]]
    assert [change.words for change in differences(policies=between).changes] == ["+ policy `m`"]


CHOICES = st.fixed_dictionaries(
    {
        "tools": st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=3),
        "effect": st.sampled_from(["", "Book {flight}"]),
        "tags": st.sampled_from([(), ("x",)]),
        "approval": st.sampled_from([False, True, ApprovalPolicy(), ApprovalPolicy(quorum=2)]),
        "policies": st.permutations(RULES).map(lambda rules: rules[:1]) | st.permutations(RULES),
        "approvers": st.sampled_from([("role:a",), ("role:b",)]),
        "model": st.sampled_from(["m:a", "m:b"]),
    }
)


@given(CHOICES, CHOICES)
def test_hashes_are_equal_exactly_if_nothing_differs(one: dict[str, Any], other: dict[str, Any]) -> None:
    old, new = (
        build_catalog(
            tools=[
                a_tool(name, effect=each["effect"], tags=each["tags"], requires_approval=each["approval"])
                for name in each["tools"]
            ],
            actors=[an_actor(model=each["model"])],
            policies=each["policies"],
            default_approvers=each["approvers"],
        )
        for each in (one, other)
    )
    found = catalog_diff(old, new)
    assert (old.hash == new.hash) is (found.changes == ())
    back = catalog_diff(new, old)
    assert [(change.kind, change.name) for change in back.changes] == [(each.kind, each.name) for each in found.changes]
