import string
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import table

from signoff.contracts.limits import POLICY_DEGREE
from signoff.policy import operators, second_engine
from signoff.policy.answer import EngineOutcome
from signoff.policy.cost import STEP, Cost, CostGrowth, _find_name, cost_of, growth, sizes_at_most
from signoff.policy.extent import CountedExtent, EmptyExtent, Extent, counted_extents
from signoff.policy.schema_shapes import read_schema
from signoff.policy.second_engine import as_celpy, second_program

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "t": {"type": "string"},
        "u": {"type": "string"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "s": {"type": "array", "items": {"type": "string"}},
        "o": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"k": {"type": "integer"}, "v": {"type": "array", "items": {"type": "integer"}}},
            },
        },
        "any": {},
    },
}
VARIABLES = {"args": read_schema(SCHEMA)}


def tree(text: str) -> Any:
    return second_program(text).tree


def cost(text: str, args: dict[str, Any]) -> Cost:
    return cost_of(tree(text), counted_extents({"args": args}))


def data(size: int) -> dict[str, Any]:
    return {
        "n": 1,
        "t": "t" * size,
        "u": "u" * size,
        "l": list(range(size)),
        "s": [f"{each}" for each in range(size)],
        "o": [{"k": 1, "v": [2]} for _ in range(size)],
        "any": [1] * size,
    }


# The degree


@table(
    ("text", "degree"),
    ("args.n < 5 && args.n + args.n * 2 > 1", 0),
    ("args.t == 'x'", 0),
    ("args.o[0].k == 1", 0),
    ("args.t == args.u", 1),
    ("args.l == args.any", 1),
    ("1 in args.l", 1),
    ("args.t.contains('x') && args.t.matches('^[a-z]+$') && size(args.t) < 5", 1),
    ("args.t + args.u == 'x'", 1),
    ("args.n > 1 ? args.t == args.u : false", 1),
    ("args.l.all(x, x > 0 && x < args.n)", 1),
    ("args.s.exists(x, x == args.t)", 1),
    ("args.l.all(x, x in [1, 2, 3])", 1),
    ("args.o.all(x, x.v.all(y, y > x.k))", 1),
    ("args.l.exists(x, [1, 2].exists(y, x == y))", 1),
    ("args.l.includes(1)", 1),
    ("args.s.includes(args.t)", 1),
    ("args.l.all(x, args.l.includes(x))", 2),
    ("args.t.includes(args.u)", 2),
    ("args.any.includes(args.u)", 2),
    ("args.t.contains(args.u)", 2),
    ("args.t.matches(args.u)", 2),
    ("args.l.filter(x, x > 1).size() > 0", 2),
    ("args.l.all(x, x in args.any)", 2),
    ("args.l.all(x, args.t == args.u)", 2),
    ("args.l.all(x, args.l.all(y, x < y))", 2),
    ("args.o.all(x, x.v.all(y, y in x.v))", 2),
    ("args.s.exists(x, args.t.contains(x))", 2),
    ("args.l.map(x, args.t + 'x').size() > 0", 2),
    ("args.l.all(x, args.l.all(y, y in args.l))", 3),
    ("args.l.map(x, args.l.map(y, args.t)).size() > 0", 3),
    ("args.s.all(x, args.t.contains(args.u))", 3),
    ("args.l.all(x, args.l.all(y, args.t.matches(args.u)))", 4),
)
def test_degree_counts_data_read_again_for_each_item(text: str, degree: int) -> None:
    assert growth(tree(text), VARIABLES).degree == degree


def test_known_numbers_are_not_counted_as_joins() -> None:
    small = sizes_at_most(VARIABLES, nodes=1, text=1)
    assert cost_of(tree("args.l.all(x, x + args.n > 1)"), small).joins == 0
    assert cost_of(tree("args.t + args.u == 'x'"), small).joins == 0
    for text in ("args.s.all(x, x + x == 'x')", "args.any.all(x, x + x == 2)", "args.l.map(x, [x] + [x]) == []"):
        assert cost_of(tree(text), small).joins > 0


def test_repeated_references_count_with_their_full_size() -> None:
    sixteen = "[args.any].map(x, [x, x, x, x]).map(x, [x, x, x, x])"
    once, often = cost("[args.any] == [args.any]", data(1_000)), cost(f"{sixteen} == {sixteen}", data(1_000))
    assert often.steps > 15 * once.steps
    assert worked(f"{sixteen} == {sixteen}", data(1_000)).compared > 15_000


def test_sizes_are_counted_per_place_in_the_data() -> None:
    found = CountedExtent(([{"k": "äb", "v": [1, 2]}, {"k": "c", "z": None}],))
    assert (found.kind, found.length, found.nodes) == ("list", 2, 13)
    items = found.child(None)
    assert (items.kind, items.length) == ("map", 4)
    assert (items.child("k").kind, items.child("k").length, items.child("k").text) == ("text", 4, 4)
    assert (items.child("v").length, items.child("z").length, items.child("none").nodes) == (2, 0, 0)


# Against real evaluation


class Work:
    def __init__(self) -> None:
        self.visits = 0
        self.compared = 0
        self.bytes = 0

    @property
    def units(self) -> int:
        return self.visits * STEP + self.compared * 512


@contextmanager
def measured(work: Work) -> Iterator[dict[str, Any]]:
    equal, visit = operators.equal, second_engine._Evaluator._visit_tree

    def counting(left: Any, right: Any) -> bool:
        work.compared += 1
        return equal(left, right)

    def visiting(self: Any, node: Any) -> Any:
        work.visits += 1
        return visit(self, node)

    def adding(left: Any, right: Any) -> Any:
        made = operators.FUNCTIONS["_+_"](left, right)
        work.bytes += len(made) if isinstance(made, str | list) else 0
        return made

    functions = {
        **operators.FUNCTIONS,
        "_+_": adding,
        "_==_": operators._boolean(counting),
        "_in_": operators._boolean(operators._contains),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(operators, "equal", counting)
        patched.setattr(second_engine._Evaluator, "_visit_tree", visiting)
        yield functions


def worked(text: str, args: dict[str, Any]) -> Work:
    work = Work()
    with measured(work) as functions:
        found: EngineOutcome = second_program(text, functions).run({"args": as_celpy(args)})
    assert found.note != "too many steps"
    return work


NUMBERS = st.sampled_from(["args.n", "1", "size(args.t)", "x", "y", "args.l[0]", "args.o[0].k"])
TEXTS = st.sampled_from(["args.t", "args.u", "'a'", "x", "y", "string(args.n)"])
LISTS = st.sampled_from(["args.l", "args.s", "args.any", "[1, 2]", "[args.t, args.u]", "[x, y]", "args.o[0].v"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    macro = st.sampled_from(["all", "exists", "exists_one"])
    name = st.sampled_from(["x", "y"])
    return st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("({} || !{})".format, inner, inner),
        st.builds("{}.{}({}, {})".format, LISTS, macro, name, inner),
        st.builds("({}.filter({}, {}).size() > 1)".format, LISTS, name, inner),
        st.builds("({}.map({}, {}).size() > 1)".format, LISTS, name, st.one_of(TEXTS, LISTS, NUMBERS)),
        st.builds("({}.map({}, {} + {}) == {})".format, LISTS, name, TEXTS, TEXTS, LISTS),
        st.builds("({} + {}).{}({}, {})".format, LISTS, LISTS, macro, name, inner),
    )


EXPRESSIONS = st.recursive(
    st.one_of(
        st.builds("({} < {})".format, NUMBERS, NUMBERS),
        st.builds("({} == {})".format, TEXTS, TEXTS),
        st.builds("({} == {})".format, LISTS, LISTS),
        st.builds("({} in {})".format, st.one_of(NUMBERS, TEXTS, LISTS), LISTS),
        st.builds("({} + {} == {})".format, TEXTS, TEXTS, TEXTS),
        st.builds("{}.contains({})".format, TEXTS, TEXTS),
        st.builds("{}.includes({})".format, TEXTS, TEXTS),
        st.builds("{}.includes({})".format, LISTS, st.one_of(NUMBERS, TEXTS, LISTS)),
    ),
    grown,
    max_leaves=6,
)
WORDS = st.text(alphabet=string.ascii_lowercase + "é", max_size=12)
DATA = st.fixed_dictionaries(
    {
        "n": st.integers(0, 9),
        "t": WORDS,
        "u": WORDS,
        "l": st.lists(st.integers(0, 9), max_size=7),
        "s": st.lists(WORDS, max_size=7),
        "o": st.lists(
            st.fixed_dictionaries({"k": st.integers(0, 3), "v": st.lists(st.integers(0, 9), max_size=4)}),
            min_size=1,
            max_size=4,
        ),
        "any": st.lists(st.integers(-9, 9) | WORDS | st.lists(st.integers(0, 3), max_size=3), max_size=6),
    }
)


def bound(text: str) -> str:
    return f"[args.t].all(x, [args.l].all(y, {text}))" if "x" in text or "y" in text else text


@settings(max_examples=150)
@given(EXPRESSIONS, DATA)
def test_evaluation_never_exceeds_its_cost(text: str, args: dict[str, Any]) -> None:
    whole = bound(text)
    most, work = cost(whole, args), worked(whole, args)
    assert work.units <= most.units
    assert work.bytes <= most.memory


@settings(max_examples=80)
@given(EXPRESSIONS, DATA)
def test_cost_over_data_is_within_the_cost_over_sizes(text: str, args: dict[str, Any]) -> None:
    whole, sizes = bound(text), counted_extents({"args": args})["args"]
    widest = sizes_at_most(VARIABLES, nodes=sizes.nodes + sizes.length, text=sizes.text + sizes.nodes)
    assert cost(whole, args).steps <= cost_of(tree(whole), widest).steps


@settings(max_examples=40)
@given(EXPRESSIONS)
def test_work_grows_with_no_higher_power_than_the_degree(text: str) -> None:
    whole = bound(text)
    degree = growth(tree(whole), VARIABLES).degree
    if degree <= POLICY_DEGREE:
        small, large = worked(whole, data(5)).units, worked(whole, data(15)).units
        # Texts of numbers grow by a character, which does not count as growth.
        assert large <= small * 3**degree * 1.5 + 100 * STEP


@table(
    "text",
    "args.l.all(x, x >= 0)",
    "args.l.all(x, args.any.all(y, x < y + 100))",
    "args.l.all(x, x in args.l)",
    "args.o.all(x, x.v.all(y, y == 2))",
    "args.l.filter(x, x >= 0).size() > 1",
)
def test_cost_is_close_to_the_real_work(text: str) -> None:
    """A bound that is too high would refuse everything: the real work is at least a sixth of it."""
    assert cost(text, data(30)).units <= 6 * worked(text, data(30)).units


# Exact values


EXACTLY = {
    "n": 3,
    "t": "héllo",
    "u": "lo",
    "l": [4, 5, 6],
    "s": ["a", "bc"],
    "o": [{"k": 1, "v": [1, 2]}, {"k": 2, "v": []}],
    "any": {"p": "qr", "z": [1]},
}


@table(
    ("text", "units", "memory", "joins"),
    ("1 < 2", 49664, 1600, 0),
    ("'ab' == 'abc'", 50186, 1600, 0),
    ("args.n", 25088, 832, 0),
    ("args['n'] == 1", 74246, 2368, 0),
    ("args.any['p'] == 'qr'", 82958, 2624, 0),
    ("args.l[0] > 1", 82432, 2624, 0),
    ("args.any[args.t] == 1", 90636, 2880, 0),
    ("args.any[args.n] == 1", 91648, 2880, 0),
    ("args[args.u]", 67644, 3868, 0),
    ("!(args.n > 1) || args.n * 2 - 1 == -5", 205312, 6464, 0),
    ("args.t == args.u", 67088, 2112, 0),
    ("args.l == args.any", 71176, 2112, 0),
    ("args.l == [4, 5, 6]", 118784, 3904, 0),
    ("args.n == 3", 57856, 1856, 0),
    ("args.any == 'x'", 58374, 1856, 0),
    ("3 in args.l", 61440, 1856, 0),
    ("args.t in args.s", 68626, 2112, 0),
    ("args.l in [args.l]", 94208, 3008, 0),
    ("args.n + 1 > 2", 90624, 2880, 0),
    ("args.n - 1 > 2", 90624, 2880, 0),
    ("args.t + args.u == 'x'", 99350, 3144, 0),
    ("args.t - args.u == 'x'", 98816, 3136, 0),
    ("args.l + args.l == []", 110592, 3840, 0),
    ("args.any + args.t == 'x'", 103450, 3658, 0),
    ("args.t + args.any == 'x'", 103450, 3658, 0),
    ("[]", 25088, 896, 0),
    ("[1, args.t]", 68108, 2438, 0),
    ("{}", 25088, 896, 0),
    ("{'k': args.t, args.u: 2}", 111214, 3979, 0),
    ("args.n > 1 ? args.t : args.u", 115728, 3720, 0),
    ("args.n > 1 ? args.l : args.t", 117260, 3910, 0),
    ("args.t.contains(args.u)", 66076, 2112, 0),
    ("args.t.contains('l')", 57892, 1856, 0),
    ("args.l.includes(4)", 61952, 2112, 0),
    ("args.t.includes(args.u)", 67112, 2182, 0),
    ("args.any.includes('p')", 64034, 2244, 0),
    ("args.t.matches(args.u)", 180764, 2112, 0),
    ("string(args.n) == '3'", 82950, 2688, 0),
    ("string(args.t)", 50264, 1772, 0),
    ("bytes(args.t)", 50264, 1772, 0),
    ("dyn(args.l)", 51200, 1856, 0),
    ("int(args.t) == 1", 82444, 2630, 0),
    ("size(args.l) > 1", 82432, 2624, 0),
    ("args.t.startsWith(args.u)", 66064, 2120, 0),
    ("args.t.strangely() == 'x'", 74770, 2374, 0),
    ("args.l.size() == 3", 74240, 2368, 0),
    ("has(args.any.p)", 57860, 1858, 0),
    ("args.l.all(x, x > 1)", 328192, 10304, 0),
    ("args.l.exists(x, x == args.n)", 360960, 11328, 0),
    ("args.s.exists_one(x, x == args.t)", 271878, 8512, 0),
    ("args.l.filter(x, x > 4)", 329872, 10832, 0),
    ("args.l.map(x, x + 1)", 331920, 11088, 0),
    ("args.s.map(x, x + args.t)", 274580, 9194, 3),
    ("args.l.map(x, x > 4, x + 1)", 528528, 17232, 0),
    ("args.s.map(x, [x, x])", 278604, 9862, 0),
    ("args.o.all(x, x.v.all(y, y > x.k))", 549376, 17216, 0),
    ("args.s.map(x, args.t + args.u)", 299680, 10032, 3),
    ("args.l.all(x, args.s.exists(y, y == 'a'))", 1120840, 34880, 0),
    ("args.o.all(x, x.v == args.l)", 297472, 9280, 0),
    ("args.l.all(x, args.l.all(y, x == y))", 1442304, 45120, 0),
    ("args.o.map(x, x.v).all(z, z == [1])", 472128, 15232, 0),
    ("args.l.all(x, x in [1, 2])", 506368, 16192, 0),
    ("args.s.all(x, x + x == 'aa')", 346148, 10822, 3),
    ("args.missing == 1", 57856, 1856, 0),
    ("args.o.all(x, x == x.v)", 279048, 8512, 0),
    ("args.t.getFullYear() == args.any", 82444, 2630, 0),
    ("args.t.endsWith(args.u) == args.any", 107024, 3400, 0),
    ("args.t.startsWith(args.u) == args.any", 107024, 3400, 0),
    ("size(args.t) == args.any", 90636, 2886, 0),
    ("args.t.strangely() == args.any", 86560, 2630, 0),
    ("string(args.n) == args.any", 94792, 2944, 0),
    ("dyn(args.t) == args.any", 94240, 2950, 0),
    ("bytes(args.any) == args.any", 97368, 2948, 0),
    ("args.l.map(x, args.any).all(y, y == args.any)", 580272, 18064, 0),
    ("args.l.filter(x, x > 1) == args.any", 374424, 11920, 0),
    ("args['t'] == args['u']", 99868, 3136, 0),
    ("args.t.matches('(ab|c){20}')", 58024, 1856, 0),
    ("(args.n > 1 ? 'ab' : 'cd') == args.t", 140816, 4416, 0),
    ("args.l.all(x, string(x) == args.t)", 463104, 14656, 0),
    ("string(args.n) + 'x' == args.t", 125592, 4003, 0),
    ("args.t.strangely() + 'x' == args.u", 122932, 4367, 0),
    ("args.t.lowerAscii()", 42008, 1420, 0),
    ("args.t.upperAscii()", 42008, 1420, 0),
    ("args.any.upperAscii()", 47120, 2056, 0),
    ("'AB'.lowerAscii() == args.t", 75280, 2436, 0),
    ("args.any.lowerAscii() + args.u == 'x'", 118810, 4042, 0),
    ("args.s.all(x, x.lowerAscii() == args.t)", 322060, 10179, 0),
    ("args.t.split(args.u)", 73244, 3086, 0),
    ("args.t.split(args.u).all(x, x == 'h')", 704576, 22344, 0),
    ("args.t.split(args.u) + args.s == []", 156706, 5841, 0),
    ("args.s.all(x, x.split(',') == args.l)", 376862, 12172, 0),
    ("'a,b'.split(args.u) == args.l", 105496, 3591, 0),
    ("args.s.join(args.u)", 69168, 2389, 0),
    ("args.s.join(args.u) + args.t == 'x'", 143426, 4699, 0),
    ("args.o.join(args.u) == args.u", 121484, 4322, 0),
    ("args.s.all(x, args.s.join(x) == args.t)", 406160, 13147, 0),
    ("['a', 'b'].join(',') == args.t", 136276, 4629, 0),
)
def test_each_form_has_its_exact_cost(text: str, units: int, memory: int, joins: int) -> None:
    assert cost(text, EXACTLY) == Cost(units, memory, joins)


@table(
    ("text", "degree", "factor"),
    ("args.n < 5", 0, 57856),
    ("args.t == args.u", 1, 66048),
    ("args.l.map(x, [x, x]) == []", 2, 133120),
    ("args.l.all(x, args.l.all(y, x < y))", 2, 196608),
    ("[args.any].map(x, [x, x, x]) == []", 0, 283152),
    ("args.t.matches(args.u)", 2, 66048),
    ("args.o.map(x, x.k)", 2, 58368),
    ("args.s.map(x, x + 'y')", 2, 83472),
    # An odd coefficient keeps its digits apart from the next one.
    ("args.t", 1, 24576),
)
def test_each_form_has_its_exact_growth(text: str, degree: int, factor: int) -> None:
    assert growth(tree(text), VARIABLES) == CostGrowth(degree, factor)


def test_pattern_cost_depends_on_its_size_for_each_byte_of_text() -> None:
    small, large, broken = (
        cost(f"args.t.matches('{pattern}')", EXACTLY).units - 2 * len(pattern) for pattern in ("a", "(a|b){60}", "(")
    )
    assert small + 6 * 30 < large
    assert small - 6 * 4 < broken <= small


def test_cost_is_rounded_up_to_whole_steps() -> None:
    assert [Cost(units).steps for units in (0, 1, STEP, STEP + 1)] == [0, 1, 1, 2]
    assert Cost(1, 2, 3) + Cost(10, 20, 30) == Cost(11, 22, 33)
    assert Cost(1, 2, 3).times(4) == Cost(4, 8, 12)
    assert (Cost(), Cost().steps) == (Cost(0, 0, 0), 0)


def test_unknown_data_is_counted_at_its_maximum_of_each_kind() -> None:
    size = sizes_at_most(VARIABLES, nodes=5, text=7)["args"]
    assert (size.kind, size.length, size.nodes, size.text, size.level) == ("map", 5, 5, 7, 0)
    found = {name: size.child(name).at(2) for name in ("n", "t", "l", "any")}
    assert {name: (each.kind, each.length, each.nodes, each.text) for name, each in found.items()} == {
        "n": ("number", 0, 5, 0),
        "t": ("text", 7, 5, 7),
        "l": ("list", 5, 5, 7),
        "any": ("any", 5, 5, 7),
    }
    assert {each.level for each in found.values()} == {2}
    numbers = found["l"].child(None)
    assert (numbers.kind, numbers.length, numbers.nodes, numbers.level) == ("number", 0, 5, 2)
    # The unnamed child of an object is a field of any kind.
    assert size.child(None).kind == "any"
    nothing = found["l"].empty()
    assert (nothing.kind, nothing.length, nothing.nodes, nothing.text, nothing.level) == ("list", 0, 0, 0, 2)
    assert (nothing.child(None).kind, nothing.child(None).nodes) == ("number", 0)


def test_child_of_an_extent_is_no_larger_than_the_whole() -> None:
    whole = Extent("list", 2, 5, 7, 3)
    assert whole.child("x") == whole.child(None) == Extent("any", 12, 5, 7, 3)
    assert whole.at(4) == Extent("list", 2, 5, 7, 4)
    assert whole.empty() == EmptyExtent("list", level=3)
    assert whole.empty().child("x") == EmptyExtent("any", level=3)


def test_counted_extent_keeps_its_level() -> None:
    found = CountedExtent(("ab", None), 3)
    assert (found.kind, found.length, found.nodes, found.text, found.level) == ("text", 2, 2, 2, 3)
    assert CountedExtent(([{"k": 1}],), 3).child(None).child("k").level == 3
    assert CountedExtent(([{"k": 1}],), 3).at(4).child(None).level == 4
    kinds = [CountedExtent(values).kind for values in ((), (None,), ("a", 1), (1, True), ((1,), [2]), ({}, {}))]
    assert kinds == ["number", "number", "any", "number", "list", "map"]
    # Text without an encoding is counted with its replacement.
    assert (CountedExtent(("\ud800é",)).length, CountedExtent((("a", {"b": "cd"}),)).text) == (3, 4)


@table(
    ("index", "name"),
    ("'n'", "n"),
    ('"n"', "n"),
    ("'two words'", "two words"),
    ("''", ""),
    ("'''n'''", None),
    ('"""n"""', None),
    (r"'\x6e'", None),
    ("r'n'", None),
    ("b'n'", None),
    ("('n')", "n"),
    ("1", None),
    ("12", None),
    ("args.n", None),
    ("'a' + 'b'", None),
)
def test_index_names_a_field_only_as_a_plain_text(index: str, name: str | None) -> None:
    (found,) = tree(f"args[{index}] == 1").find_data("member_index")
    assert _find_name(found.children[1]) == name
