"""Secrets out of what is told: every spelling, values and names of JSON, and never what people have to see."""

import json
from urllib.parse import quote, quote_plus

from tables import table

from signoff.approvals.card import render_card
from signoff.approvals.redaction import (
    HIDDEN,
    hide,
    names_of_repeats,
    redact_arguments,
    redact_secrets,
    redact_value,
    secret_values,
    texts_of,
)
from signoff.contracts.limits import REDACTION_CHARS

SECRET = 'Sé "cret"\n& more'
SCHEMA = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}, "to": {"type": "string"}}}


@table(
    "spelt",
    SECRET,
    repr(SECRET)[1:-1],
    json.dumps(SECRET)[1:-1],
    json.dumps(SECRET, ensure_ascii=False)[1:-1],
    json.dumps(json.dumps(SECRET))[3:-3],
    quote(SECRET),
    quote(SECRET, safe=""),
    quote_plus(SECRET),
    "S\u00e9 &quot;cret&quot;\n&amp; more",
)
def test_a_secret_is_found_in_every_spelling(spelt: str) -> None:
    assert redact_secrets(f"a {spelt} b", {SECRET}) == f"a {HIDDEN} b"


def test_a_secret_with_half_a_character_is_found_and_a_slash_in_its_address() -> None:
    half = "ab\ud800cd"
    assert redact_secrets(f"x {half} y", {half}) == f"x {HIDDEN} y"
    assert redact_secrets("x ab%3Fcd y", {half}) == f"x {HIDDEN} y"
    assert redact_secrets("x ab%20cd%2Fef y", {"ab cd/ef"}) == f"x {HIDDEN} y"


def test_names_of_what_is_no_json_stay() -> None:
    assert redact_value({1: "abc", "abc": 2}, {"abc"}) == {1: HIDDEN, HIDDEN: 2}


def test_a_secret_argument_is_known_by_its_path() -> None:
    args = {"card": {"pin": "9400x"}, "pin": "9400x", "memos": ["9400x"]}
    found = redact_arguments(args, ("card.pin",), {"9400x"})
    assert found == {"card": {"pin": "9400x"}, "pin": HIDDEN, "memos": [HIDDEN]}


def test_a_nested_value_is_hidden_by_its_path_alone() -> None:
    args = {"card": {"pin": "9400x", "no": "4111"}, "pin": "open", "logins": [{"pin": "abcd", "user": "ana"}]}
    names = ("card.pin", "logins.pin")
    assert hide(args, names, lambda _: "***") == {
        "card": {"pin": "***", "no": "4111"},
        "pin": "open",
        "logins": [{"pin": "***", "user": "ana"}],
    }
    assert hide(args["card"], names, lambda _: "***", "card") == {"pin": "***", "no": "4111"}
    assert secret_values(args, names) == {"9400x", "abcd"}
    assert hide(args, (), lambda _: "***") is args


def test_what_lies_at_a_path_of_the_arguments_is_redacted_by_that_path() -> None:
    args = {"card": {"pin": "9400x", "memo": "is 9400x"}, "logins": [{"pin": "9400x", "note": "9400x"}], "memo": None}
    names = ("card.pin", "logins.pin")
    assert redact_arguments(args, names, {"9400x"}) == {
        "card": {"pin": "9400x", "memo": f"is {HIDDEN}"},
        "logins": [{"pin": "9400x", "note": HIDDEN}],
        "memo": None,
    }
    part = redact_arguments(args["card"], names, {"9400x"}, "card")
    assert part == {"pin": "9400x", "memo": f"is {HIDDEN}"}


def test_arguments_that_repeat_a_secret_are_named_by_their_path() -> None:
    args = {
        "pin": "hunter2", "note": "it is hunter2", "plain": "else", "to": {"name": "hunter2", "pin": "hunter2"},
        "lines": [{"text": "x"}, {"text": "hunter2"}], "count": 3,
    }  # fmt: skip
    names = {"pin", "to.pin"}
    repeats = names_of_repeats(args, names)
    assert repeats == {"note", "to.name", "lines.text"}
    assert names_of_repeats(args | {"pin": "", "to": {}}, names) == frozenset()
    assert names_of_repeats(args, ()) == frozenset()


def test_the_longer_of_two_secrets_goes_first() -> None:
    assert redact_secrets("a 9400-extra b 9400", {"9400", "9400-extra"}) == f"a {HIDDEN} b {HIDDEN}"


def test_texts_in_every_container_and_of_three_characters_are_found() -> None:
    value = {"a": ("one", {"two"}), "b": frozenset({"six"}), "c": bytearray(b"ten\xff"), "d": 123, "e": 12, "f": False}
    assert set(texts_of(value)) == {"one", "two", "six", "ten", "123"}


def test_short_texts_and_truth_are_no_secrets() -> None:
    """Hiding every `1` would only make a text unreadable; numbers and bytes of some length are texts."""
    values = secret_values({"a": ["x", "ab", "abc", 12, 4711, True, None, {"b": b"bytes"}], "c": "open"}, ("a",))
    assert values == {"abc", "4711", "bytes"}
    assert list(texts_of("ab")) == []


def test_a_json_value_is_told_without_them() -> None:
    """In texts and names; a number only where it is the secret as a whole, so that no other one is cut up."""
    value = {"abc": ["x abc", 4711, 14711, True, None, {"n": 4711.5}]}
    found = redact_value(value, {"abc", "4711"})
    assert found == {HIDDEN: [f"x {HIDDEN}", HIDDEN, 14711, True, None, {"n": 4711.5}]}
    assert redact_value(value, ()) is value


def test_what_would_take_too_long_to_look_through_is_not_told() -> None:
    """Thousands of secrets against a large text would hold up the worker for everybody."""
    many = {f"secret-{number}" for number in range(2_000)}
    assert redact_secrets("x" * (REDACTION_CHARS // len(many) + 1), many) == HIDDEN
    assert redact_secrets("x" * 1_000, many) == "x" * 1_000


def test_a_card_shows_numbers_and_names_whatever_the_agent_calls_secret() -> None:
    args = {"pin": "9400", "amount": 9400, "to": "Mallory 9400", "9400": "x"}
    assert redact_arguments(args, ("pin",), {"9400"}) == {**args, "to": f"Mallory {HIDDEN}"}
    card = render_card(
        effect="Pay {amount} to {to}",
        title="",
        tool="pay",
        args=args,
        schema=SCHEMA,
        secrets=("pin",),
        notes=("again",),
    )
    assert card.effect == f"Pay 9400 to Mallory {HIDDEN}"
    assert card.note == "again; a secret value is repeated in `to`, and masked there"
    assert [row.value for row in card.rows] == ["hidden, 4 characters", "9400", f"Mallory {HIDDEN}", "x"]


def test_a_card_repeats_no_secret_of_another_call() -> None:
    card = render_card(
        effect="Pay {to}",
        title="",
        tool="pay",
        args={"to": "with the other one"},
        schema=SCHEMA,
        agent_says="it is the other one",
        others={"the other one"},
    )
    assert (card.effect, card.agent_says) == (f"Pay with {HIDDEN}", f"it is {HIDDEN}")
    assert "`to`" in card.note


def test_a_secret_with_half_a_character_is_hidden_like_any_other() -> None:
    # What a model proposes may hold one: looking for it must not fail, or no card could be drawn. Seen to raise while
    # the secret was encoded as it came.
    assert redact_secrets("it is pin\ud800-1234", ["pin\ud800-1234"]) == "it is [hidden]"
