"""Remarks made below the pages, read in the language of the page."""

import ast
import re
from collections.abc import Iterable, Iterator

from documents import PACKAGE
from tables import table

from signoff.approvals.card import render_card
from signoff.approvals.card_notes import (
    NOT_RUN,
    POLICY_CHANGED,
    TOOL_CHANGED,
    UNDECLARED_TOOL,
    editor_note,
    fallback_note,
    runner_note,
)
from signoff.formats.json_schema import compile_schema
from signoff.gateway.approvals.argument_form import fields_of
from signoff.gateway.approvals.argument_parser import read_fields
from signoff.languages.catalogue import ENGLISH, language_codes, texts_of
from signoff.registry.gates.argument_check import apply_correction
from signoff.registry.hooks import Correction
from signoff.texts.remarks import REMARK_CHARS, remark_words

OTHERS = sorted(set(language_codes()) - {ENGLISH})
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
"""Every argument of this is wrong in another way."""
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
_CHANGED = " changed the arguments"
UNREADABLE = {"whole": "x", "number": "x", "kind": "x", "many": "x", "data": "{"}


def _problems(sent: dict[str, str]) -> list[str]:
    schema = compile_schema(SCHEMA)
    fields = fields_of(GIVEN, SCHEMA)
    typed = read_fields(fields, {f"args/{name}": value for name, value in sent.items()}, GIVEN, schema)
    return [*(field.problem for field in typed.fields if field.problem), *typed.problems]


def _remarks() -> list[str]:
    secret = {"pin": "4711-9", "a": "4711-9", "b": "4711-9", "c": "4711-9", "d": "4711-9"}
    repeated = [{name: secret[name] for name in names} for names in (("pin", "a"), ("pin", "a", "b", "c", "d"))]
    corrected = [apply_correction({"a": 1}, Correction({"a": 2}, why))[1] for why in ("", "names have a capital")]
    cards = [render_card(effect="", title="", tool="t", args=args, schema={}, secrets=("pin",)) for args in repeated]
    notes = [TOOL_CHANGED, POLICY_CHANGED, NOT_RUN, editor_note("Bo Berg"), fallback_note(["rates", "quotes"])]
    notes += [runner_note("coder"), UNDECLARED_TOOL]
    return [*notes, *(card.note for card in cards), *corrected, *_problems(SENT), *_problems(UNREADABLE)]


@table("language", OTHERS)
def test_every_remark_is_translated(language: str) -> None:
    remarks = _remarks()
    assert len(remarks) > 25
    for remark in remarks:
        page_text = remark_words(remark, language)
        assert page_text != remark
        assert remark_words(f"{TOOL_CHANGED}; {remark}", language).endswith(page_text)
        assert not {"must", "was", "the", "every", "is"} & set(page_text.replace(":", " ").split()), page_text


@table(
    ("remark", "expected"),
    [
        ("Bo Berg changed the arguments", "Bo Berg hat die Argumente geändert"),
        ("`[2].price` must be at least 5", "`[2].price` muss mindestens 5 sein"),
        ("every line must be a whole number, such as 380", "jede Zeile: muss eine ganze Zahl sein, etwa 380"),
        (f"{NOT_RUN}; the flight is full", "dies wurde schon beantwortet und nicht ausgeführt; the flight is full"),
        ("the flight is full", "the flight is full"),
        ("", ""),
    ],
)
def test_values_stay_and_so_does_what_somebody_else_wrote(remark: str, expected: str) -> None:
    assert remark_words(remark, "de") == expected
    assert remark_words(remark, ENGLISH) == remark


@table("language", OTHERS)
def test_a_remark_holds_others_two_deep(language: str) -> None:
    page_text = remark_words("every line every line every line every line is required", language)
    assert page_text.endswith("every line is required")
    assert "every line" not in page_text.removesuffix("every line is required")
    longest = f"{'a' * (REMARK_CHARS - len(_CHANGED))}{_CHANGED}"
    assert remark_words(longest, language) != longest
    assert remark_words(f"a{longest}", language) == f"a{longest}"


def test_no_value_of_a_remark_is_empty() -> None:
    assert remark_words(_CHANGED, "de") == _CHANGED
    assert remark_words("must be of type ", "de") == "must be of type "
    assert remark_words("The arguments were corrected (a): b): c.", "de").endswith("(a): b): c.")
    assert remark_words("The arguments were corrected (): b.", "de") == "The arguments were corrected (): b."


def test_braces_of_a_value_are_no_place() -> None:
    assert remark_words("{who} {0} changed the arguments", "fr") == "{who} {0} a modifié les arguments"


def test_each_remark_is_found_by_its_own_text() -> None:
    for key, words in texts_of(ENGLISH).items():
        if key.startswith("remark.") and "{what}" not in words:
            filled = words.replace("{n}", "7").replace("{line}", "7")
            assert remark_words(filled, "it") == texts_of("it")[key].replace("{n}", "7").replace("{line}", "7"), key


def test_every_remark_is_one_that_is_made() -> None:
    """Each text is, word for word, in what writes it: changed there alone, it would be found no more."""
    folders = ("approvals", "activities", "registry", "formats", "gateway", "engine", "store", "policy")
    written = "".join(path.read_text() for folder in folders for path in (PACKAGE / folder).rglob("*.py"))
    for key, words in texts_of(ENGLISH).items():
        pieces = re.split(r"`?\{\w+\}`?", words) if key.startswith("remark.") else []
        # The library of JSON writes these: see `test_what_json_says_is_translated`.
        pieces = [] if key.startswith("remark.json.") else pieces
        clauses = [each for piece in pieces for each in piece.split(", ")]
        assert [each for each in clauses if len(each) > 4 and each.strip(" .:") not in written] == [], key


WRITERS: dict[str, tuple[str, ...]] = {
    "activities/gate_activity.py": ("_DOUBT_NOTE", "_ANOTHER_RAN", "_BEGUN_BEFORE", "GateActivity._ask_hooks"),
    "approvals/card.py": ("_repetition_note",),
    "approvals/card_notes.py": (
        *("TOOL_CHANGED", "POLICY_CHANGED", "UNDECLARED_TOOL", "NOT_RUN", "LOOKALIKES"),
        *("editor_note", "fallback_note", "runner_note"),
    ),
    "engine/kill_switch.py": ("check_operator",),
    "formats/bounds.py": ("bounds_problem",),
    "formats/json_reader.py": ("_finite", "read_json", "_object_of", "_refuse_constant"),
    "formats/json_schema.py": (
        "_LIMITS",
        "CompiledSchema.check",
        "_problems",
        "_nearest_branch",
        "_unknown",
        "_message",
    ),
    "gateway/approvals/argument_parser.py": ("_AS_NUMBER", "_AS_INTEGER", "read_fields", "_value", "_item"),
    "gateway/approvals/decision_writer.py": ("_untaken_receipt",),
    "gateway/freeze_service.py": ("thaw",),
    "gateway/grant_service.py": ("take_back",),
    "policy/compiled_policy.py": ("CompiledPolicy.judge", "_NEVER", "_ALWAYS", "_MEANING", "_describe_reading"),
    "registry/gates/argument_check.py": ("check_arguments", "apply_correction", "check_corrected", "problems_text"),
    "registry/gates/pipeline.py": ("surface", "available", "schema", "capabilities", "approval"),
    "store/grants.py": ("Grants.revoke",),
}
"""What writes remarks: by module, the functions and constants that do."""


@table("module", WRITERS)
def test_what_is_written_is_known(module: str) -> None:
    """Each sentence of what writes remarks is one of the table, or a part of one: a new one would stay English."""
    known = [words for key, words in texts_of(ENGLISH).items() if key.startswith("remark.")]
    written = {name: list(_sentences(node)) for name, node in _parts(ast.parse((PACKAGE / module).read_text()).body)}
    for name in WRITERS[module]:
        pieces = [piece for each in written[name] for piece in each.split("; ")]
        sentences = [each for each in pieces if " " in each and len(re.findall(r"[a-z]{2,}", each)) > 1]
        assert sentences, name
        for each in sentences:
            pattern = r"`?\{\w+\}`?".join(re.escape(piece) for piece in re.split(r"`?(?:\{\})+`?", each))
            assert any(re.search(pattern, words) for words in known), each


def _parts(body: Iterable[ast.stmt], within: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The functions and constants of a module, by their names; methods behind their class."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _parts(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield within + node.name, node
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((each.id, node) for each in targets if isinstance(each, ast.Name))


def _sentences(node: ast.AST) -> Iterator[str]:
    """The texts within a piece of code, `{}` in their places; without the docstring."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
        for each in node.values:
            yield from () if isinstance(each, ast.Constant) else _sentences(each)
    else:
        documented = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None
        for each in node.body[1:] if documented else ast.iter_child_nodes(node):
            yield from _sentences(each)


@table("text", ["{", '{"a"}', '{"a": }', '{"a": 1 "b"}', "1 2", '"a', '"\n"', "[1"])
def test_what_json_says_is_translated(text: str) -> None:
    field = fields_of(GIVEN, SCHEMA)[-1]
    typed = read_fields([field], {field.key: text}, GIVEN, None)
    page_text = remark_words(typed.fields[0].problem, "de")
    assert page_text.startswith("ist kein JSON: ")
    assert not {"expecting", "data", "string", "character"} & set(page_text.split()), page_text


@table(
    ("why", "expected"),
    [
        ("`deny_if` is true, so the call is denied", "`deny_if` ergibt true: der Aufruf wird abgelehnt"),
        ("`auto_approve_if` gave no true or false, so a person is asked",
         "`auto_approve_if` ergab weder wahr noch falsch: ein Mensch wird gefragt"),
        ("the tool never asks", "das Werkzeug fragt nie"),
    ],
)  # fmt: skip
def test_why_a_policy_says_so_is_translated(why: str, expected: str) -> None:
    assert remark_words(why, "de") == expected
