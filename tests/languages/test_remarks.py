import ast
import string
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from documents import PACKAGE

from signoff.approvals.card import render_card
from signoff.approvals.card_notes import (
    NOT_RUN,
    OFFLINE_MODEL,
    POLICY_CHANGED,
    TOOL_CHANGED,
    UNDECLARED_TOOL,
    editor_note,
    fallback_note,
    runner_note,
)
from signoff.contracts.content import Remark, Words
from signoff.contracts.errors import NotFound, Refused
from signoff.engine.kill_switch import check_operator
from signoff.formats.json_reader import NotJson, read_json
from signoff.formats.json_schema import SchemaProblem, compile_schema
from signoff.gateway.approvals.argument_form import fields_of
from signoff.gateway.approvals.argument_parser import read_fields
from signoff.languages.catalogue import ENGLISH, language_codes, texts_of
from signoff.languages.remarks import english, error_text, remark_text, worded
from signoff.registry.gates.argument_check import apply_correction
from signoff.registry.hooks import Correction
from signoff.testing.builders import a_person

OTHERS = sorted(set(language_codes()) - {ENGLISH})
TABLES = {"formats/json_schema.py": {"n"}}
"""Module -> the placeholders of the codes in its table."""
SCHEMA = {
    "type": "object",
    "properties": {
        "least": {"type": "integer", "minimum": 5},
        "most": {"type": "integer", "maximum": 5},
        "more": {"type": "number", "exclusiveMinimum": 5},
        "less": {"type": "number", "exclusiveMaximum": 5},
        "times": {"type": "integer", "multipleOf": 5},
        "long": {"type": "string", "minLength": 5},
        "short": {"type": "string", "maxLength": 1},
        "like": {"type": "string", "pattern": "^a$"},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "many": {"type": "array", "items": {"type": "integer"}, "minItems": 5},
        "few": {"type": "array", "items": {"type": "integer"}, "maxItems": 1},
        "whole": {"type": "integer"},
        "number": {"type": "number"},
        "data": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    },
    "required": ["least", "gone"],
}
"""Every argument is wrong in another way."""
GIVEN = {
    "least": 7,
    "most": 1,
    "more": 7,
    "less": 1,
    "times": 5,
    "long": "abcdef",
    "short": "a",
    "like": "a",
    "kind": "a",
    "many": [1, 2, 3, 4, 5],
    "few": [1],
    "whole": 1,
    "number": 1,
    "data": {"a": 1},
}
SENT = {
    "least": "4",
    "most": "6",
    "more": "5",
    "less": "5",
    "times": "6",
    "long": "abc",
    "short": "abc",
    "like": "b",
    "many": "1",
    "few": "1\n2",
    "data": "{}",
}
UNREADABLE = {"whole": "x", "number": "x", "kind": "x", "many": "x", "data": "{"}


class Made(NamedTuple):
    where: str
    module: str
    code: str
    """"" for a code from a table."""
    places: set[str]


def made() -> Iterator[Made]:
    for path in sorted(each for part in PACKAGE.iterdir() for each in (part.rglob("*.py") if part.is_dir() else ())):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Remark.of":
                module = path.relative_to(PACKAGE).as_posix()
                first = node.args[0]
                code = first.value if isinstance(first, ast.Constant) else ""
                places = {each.arg for each in node.keywords if each.arg is not None}
                yield Made(f"{module}:{node.lineno}", module, str(code), places)


def places_of(code: str) -> set[str] | None:
    words = texts_of(ENGLISH).get(f"remark.{code}")
    return None if words is None else {name for _, name, _, _ in string.Formatter().parse(words) if name is not None}


def test_every_remark_fits_the_placeholders_of_its_text() -> None:
    """In production a remark with an unknown code, or a missing value, would be shown as its code."""
    found = list(made())
    assert found
    assert {each.where: each.code for each in found if each.code and places_of(each.code) != each.places} == {}
    tables = {each.module: each.places for each in found if not each.code}
    assert tables == TABLES


def test_every_text_of_remarks_is_used() -> None:
    named = {each.code for each in made()}
    for module in TABLES:
        nodes = ast.walk(ast.parse((PACKAGE / module).read_text()))
        named |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    # The gates ask a model to call again, and omit that for a person.
    named.add("invalid")
    assert {key for key in texts_of(ENGLISH) if key.startswith("remark.")} <= {f"remark.{code}" for code in named}


def _problems(sent: dict[str, str]) -> list[Words]:
    fields = fields_of(GIVEN, SCHEMA)
    typed = read_fields(fields, {f"args/{name}": each for name, each in sent.items()}, GIVEN, compile_schema(SCHEMA))
    return [*(field.problem for field in typed.fields if field.problem), *typed.problems]


def _remarks() -> list[Words]:
    secret = {"pin": "4711-9", "a": "4711-9", "b": "4711-9", "c": "4711-9", "d": "4711-9"}
    repeated = [{name: secret[name] for name in names} for names in (("pin", "a"), ("pin", "a", "b", "c", "d"))]
    corrected = [apply_correction({"a": 1}, Correction({"a": 2}, why))[1] for why in ("", "names have a capital")]
    cards = [render_card(effect="", title="", tool="t", args=args, schema={}, secrets=("pin",)) for args in repeated]
    notes = [
        TOOL_CHANGED,
        POLICY_CHANGED,
        NOT_RUN,
        OFFLINE_MODEL,
        UNDECLARED_TOOL,
        editor_note("Bo Berg"),
        runner_note("coder"),
    ]
    notes += [fallback_note(["rates", "quotes"]) or "", *(each for card in cards for each in card.notes), *corrected]
    return [*notes, *_problems(SENT), *_problems(UNREADABLE)]


@pytest.mark.parametrize("language", OTHERS)
def test_remarks_are_completely_translated(language: str) -> None:
    remarks = _remarks()
    assert len(remarks) > 25
    for remark in remarks:
        words = remark_text(remark, language)
        assert words != english(remark)
        assert not {"must", "was", "the", "every", "is"} & set(words.replace(":", " ").split()), words


@pytest.mark.parametrize(
    ("remark", "expected"),
    [
        (editor_note("Bo Berg"), "Bo Berg hat die Argumente bearbeitet"),
        (SchemaProblem("[2].price", Remark.of("minimum", n="5")).words, "`[2].price` muss mindestens 5 sein"),
        (Remark.of("line", detail=Remark.of("integer")), "jede Zeile: muss eine ganze Zahl sein, etwa 380"),
        (
            Remark.of("verdict", rule="deny_if", answer="true", detail=Remark.of("deny")),
            "`deny_if` ergibt true: der Aufruf wird abgelehnt",
        ),
        ("the flight is full", "the flight is full"),
    ],
)
def test_remarks_nest_and_free_text_is_kept(remark: Words, expected: str) -> None:
    assert remark_text(remark, "de") == expected


@pytest.mark.parametrize("text", ["{", '{"a"}', '{"a": }', '{"a": 1 "b"}', "1 2", '"a', '"\n"', "[1"])
def test_each_json_error_is_translated(text: str) -> None:
    with pytest.raises(NotJson) as raised:
        read_json(text)
    words = remark_text(raised.value.words, "de")
    assert words.startswith("ist kein JSON: ")
    assert not {"expecting", "data", "string", "character"} & set(words.split()), words


def test_name_with_invalid_unicode_is_reported() -> None:
    with pytest.raises(NotJson, match="twice in one object"):
        read_json('{"\\ud800": 1, "\\ud800": 2}')


def test_deeply_nested_union_is_reported_in_english() -> None:
    schema: dict[str, Any] = {"type": "integer", "minimum": 1}
    for number in range(30):
        schema = {
            "anyOf": [{"type": "object", "properties": {"in": schema}, "required": ["in"], "title": f"t{number}"}]
        }
    value: Any = 0
    for _ in range(30):
        value = {"in": value}
    [problem] = compile_schema(schema, of_object=False).check(value)
    assert english(problem.words).endswith("must be at least 1")


def test_remark_without_a_text_shows_its_code() -> None:
    assert english(Remark.of("nothing.of.ours", who="ana")) == "nothing.of.ours"
    assert english(Remark.of("role", who="ana")) == "role"
    assert remark_text(Remark(code="role", values={"0": "x"}), "de") == "role"


def test_remark_values_are_inserted_unchanged() -> None:
    remark = Remark.of("role", role="{who} {0}", who="ana", language="x")
    assert remark_text(remark, "fr").count("{who} {0}") == 1
    assert remark_text("{who}", "fr") == "{who}"


def test_remarks_of_a_list_are_joined() -> None:
    assert english((Remark.of("tool_changed"), "the flight is full")) == (
        "the tool changed while the request was waiting; the flight is full"
    )


def test_endlessly_nested_remark_is_truncated() -> None:
    remark = Remark.of("required")
    for _ in range(100):
        remark = Remark.of("line", detail=remark)
    assert english(remark).endswith("line")


def test_remark_survives_json() -> None:
    remark = Remark.of("misfit", detail=(Remark.of("line", detail=Remark.of("required")), "it is full"))
    assert Remark.model_validate_json(remark.model_dump_json()) == remark


@pytest.mark.parametrize("language", OTHERS)
def test_refusal_is_in_the_language_of_the_page(language: str) -> None:
    with pytest.raises(Refused) as refused:
        check_operator(a_person("rui"), (), development=False)
    assert refused.value.message == "this needs the role `admin`, which `rui` does not have"
    assert error_text(refused.value, language) not in ("role", refused.value.message)
    assert error_text(NotFound("gone"), language) == "gone"
    assert worded(NotFound, Remark.of("no_grant", grant="`g`")).code == "unknown"
