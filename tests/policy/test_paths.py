from typing import Any

import pytest
from policy_samples import TOOL
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.compiled_policy import compile_policy
from signoff.policy.paths import referenced_paths, spell, unchecked_paths, unguarded_paths
from signoff.policy.schema_shapes import read_schema
from signoff.policy.second_engine import second_program

HOTEL = {"type": "object", "properties": {"name": {"type": "string"}, "stars": {"type": "integer"}}}
LEG = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "nights": {"type": "integer"},
        "hotel": {**HOTEL, "required": ["name"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city", "tags"],
}
FIELDS: dict[str, Any] = {
    "a": {"type": "string"},
    "b": {"type": "string"},
    "z": {"type": "string"},
    "n": {"type": "integer"},
    "leg": LEG,
    "legs": {"type": "array", "items": LEG},
    "later": {"type": "array", "items": LEG},
    "maybe": LEG,
    "grid": {"type": "array", "items": {"type": "array", "items": LEG}},
    "free": {"type": "object"},
    "rates": {"type": "object", "additionalProperties": {"type": "number"}},
    "stays": {"type": "object", "additionalProperties": LEG},
    "odd": {},
    "odds": {"type": "array"},
    "nulls": {"type": ["array", "null"], "items": {"type": "string"}},
}
OPTIONAL = ("b", "z", "later", "maybe")
SCHEMA = {"type": "object", "properties": FIELDS, "required": [name for name in FIELDS if name not in OPTIONAL]}
VARIABLES = {
    "args": read_schema(SCHEMA),
    "ctx": read_schema(
        {"type": "object", "properties": {"t": {"type": "string"}, "o": {"type": "string"}}, "required": ["t"]}
    ),
}


def read(text: str) -> tuple[str, str, str, str]:
    """The places that an expression uses, guards, may miss and cannot check, in order."""
    places = referenced_paths(second_program(text).tree, VARIABLES)
    used, guarded = sorted(places.used), sorted(places.guarded)
    found = (used, guarded, unguarded_paths(places, VARIABLES), unchecked_paths(places, VARIABLES))
    one, two, three, four = (" ".join(dict.fromkeys(spell(path) for path in paths)) for paths in found)
    return one, two, three, four


@table(
    ("text", "used"),
    ("args.a == 'x'", "args.a"),
    ("args == ctx", "args ctx"),
    ("true", ""),
    ("other.a == 'x'", ""),
    ("args.leg.hotel.name.startsWith(ctx.t)", "args.leg.hotel.name ctx.t"),
    ("(args.leg).city == (args).a", "args.a args.leg.city"),
    ("args.a == 'x' ? args.b == 'y' : args.z == 'z'", "args.a args.b args.z"),
    ("[args.b, args.a][0] == {'k': args.z}.k", "args.a args.b args.z"),
    ("size(args.b) == 1", "args.b"),
    ("dyn(args.leg).nights == 1", "args.leg"),
    ("args.legs[0].city == 'x'", "args.legs[0].city"),
    ("args.legs[args.n].city == 'x'", "args.legs[0].city args.n"),
    (
        "args.legs[args.n + size(args.b)].tags[args.leg.nights] == 'x'",
        "args.b args.leg.nights args.legs[0].tags[0] args.n",
    ),
    ("args.legs[args.legs[args.n].nights].city == 'x'", "args.legs[0].city args.legs[0].nights args.n"),
    ("args.free[args.b] == 'x'", "args.b args.free[0]"),
    ("args['a'] == 'x'", "args[0]"),
)
def test_longest_path_of_a_chain_is_read(text: str, used: str) -> None:
    assert read(text)[0] == used


@table(
    ("text", "used"),
    ("args.legs.all(l, l.city == 'x')", "args.legs args.legs[0].city"),
    ("args.legs.exists(l, l.city == args.a)", "args.a args.legs args.legs[0].city"),
    ("args.legs.exists_one(l, ctx.o == l.city)", "args.legs args.legs[0].city ctx.o"),
    ("args.legs.map(l, l.nights > 1, l.city) == []", "args.legs args.legs[0].city args.legs[0].nights"),
    ("args.legs.filter(l, l.nights == 1) == []", "args.legs args.legs[0].nights"),
    (
        "args.legs.all(l, l.tags.exists(t, t == args.b && l.city == t))",
        "args.b args.legs args.legs[0].city args.legs[0].tags args.legs[0].tags[0]",
    ),
    ("args.grid.all(g, g.all(h, h.city == 'x'))", "args.grid args.grid[0] args.grid[0][0].city"),
    ("args.leg.tags.all(t, t == 'x') && t.city == 'x'", "args.leg.tags args.leg.tags[0]"),
    ("args.legs.all(ctx, ctx.city == 'x') && ctx.t == 'x'", "args.legs args.legs[0].city ctx.t"),
    ("[1, 2].all(args, args.b == 'x')", ""),
    ("[args.b].all(x, x == ctx.t)", "args.b ctx.t"),
    ("args.legs[args.n].tags.all(t, t == 'x')", "args.legs[0].tags args.legs[0].tags[0] args.n"),
    ("args.legs.sorted(l, l.city)", "args.legs"),
)
def test_macro_variable_is_an_item_of_its_list(text: str, used: str) -> None:
    assert read(text)[0] == used


@table(
    ("text", "used", "guarded"),
    ("has(args.b)", "", "args.b"),
    ("has(args.b) && args.b == 'x'", "args.b", "args.b"),
    ("has(args.leg.hotel.stars)", "args.leg.hotel", "args.leg.hotel.stars"),
    ("args.legs.all(l, has(l.nights))", "args.legs args.legs[0]", "args.legs[0].nights"),
    ("has(args.legs[args.n].nights)", "args.legs[0] args.n", "args.legs[0].nights"),
    ("has(args.legs.filter(l, l.city == 'x')[0].nights)", "args.legs args.legs[0].city", ""),
    ("size(args.b) == 1", "args.b", ""),
)
def test_has_guards_a_place_and_reads_its_parent(text: str, used: str, guarded: str) -> None:
    assert read(text)[:2] == (used, guarded)


@table(
    ("text", "missing"),
    ("args.a == 'x' && ctx.t == 'x'", ""),
    ("args.b == 'x'", "args.b"),
    ("args.z == 'x' && ctx.o == 'x' && args.b == 'x'", "args.b args.z ctx.o"),
    ("has(args.b) && args.b == 'x'", ""),
    ("has(args.b) && args.z == 'x'", "args.z"),
    ("has(args.z) && ctx.o == args.b", "args.b ctx.o"),
    ("args.leg.hotel.name == 'x'", "args.leg.hotel"),
    ("args.maybe.hotel.stars == 1", "args.maybe"),
    ("has(args.maybe.hotel)", "args.maybe"),
    ("has(args.maybe) && args.maybe.hotel.name == 'x'", "args.maybe.hotel"),
    ("has(args.leg.hotel) && args.leg.hotel.stars == 1", "args.leg.hotel.stars"),
    ("has(args.leg.hotel) && has(args.leg.hotel.stars) && args.leg.hotel.stars == 1", ""),
    ("args.legs[0].nights == 1", "args.legs[0].nights"),
    ("args.legs.all(l, l.nights == 1)", "args.legs[0].nights"),
    ("args.legs.all(l, has(l.nights) && l.nights == 1)", ""),
    ("args.later.all(l, l.city == 'x')", "args.later"),
    ("args.stays['home'].nights == 1", "args.stays[0].nights"),
    ("has(args.legs[size(args.z)].nights)", "args.z"),
    ("args.odd.x == 1 && args.z == 'x'", "args.z"),
    ("args.free.x.y == 1 && args.z == 'x'", "args.z"),
    ("args.odd.b == 1 && args.free.b == 1 && args.rates.b == 1.0", ""),
)
def test_optional_place_is_found_unless_guarded_by_has(text: str, missing: str) -> None:
    assert read(text)[2] == missing


@table(
    ("text", "loose"),
    ("args.a == 'x' && args.legs[0].hotel.stars == 1", ""),
    ("args == ctx", ""),
    ("args.odd == 1", "args.odd"),
    ("args.odd.x[0].y == 1", "args.odd"),
    ("args.odds == []", ""),
    ("args.odds[0].x == 1", "args.odds[0]"),
    ("args.odds.exists(o, o == 1)", "args.odds[0]"),
    ("args.free.x.y == 1", "args.free.x"),
    ("args.free['x'] == 1", "args.free[0]"),
    ("has(args.free.x)", "args.free.x"),
    ("has(args.free.x) && args.free.x == 1", "args.free.x"),
    ("args.rates.eur < 1.0", "args.rates.eur"),
    ("args.rates['eur'] < 1.0", ""),
    ("args.stays.home.city == 'x'", "args.stays.home"),
    ("args.stays['home'].city == 'x'", ""),
    ("args.grid[0][0].city == 'x'", ""),
    ("args.grid[0][0].citty == 'x'", "args.grid[0][0].citty"),
    ("args.nulls[0] == 'x'", ""),
    ("args.nulls.x.y == 'x'", "args.nulls.x"),
    ("args.odd == 1 && args.free.x == 1 && args.rates.eur < 1.0", "args.free.x args.odd args.rates.eur"),
)
def test_places_without_a_schema_are_reported(text: str, loose: str) -> None:
    assert read(text)[3] == loose


def test_path_is_spelled_as_in_an_expression() -> None:
    assert spell(("args",)) == "args"
    assert spell(("args", "grid", "[]", "[]", "city")) == "args.grid[0][0].city"


def test_findings_and_errors_name_the_place() -> None:
    loose = compile_policy(
        ApprovalPolicy(auto_approve_if="args.grid[0][0].citty == 'x' && args.odd == 1"), tool=TOOL, input_schema=SCHEMA
    )
    assert loose.findings == (
        "`auto_approve_if`: not checked: `args.grid[0][0].citty`",
        "`auto_approve_if`: not checked: `args.odd`",
    )
    for text in ("args.b == 'x'", "has(args.legs[size(args.b)].nights)"):
        with pytest.raises(ConfigError, match=r"`args\.b` is optional; ask `has\(args\.b\) && \.\.\.` first"):
            compile_policy(ApprovalPolicy(deny_if=text), tool=TOOL, input_schema=SCHEMA)
