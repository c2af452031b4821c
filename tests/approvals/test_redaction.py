import json
from urllib.parse import quote, quote_plus

import pytest
from tables import table

from signoff.approvals import redaction
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
def test_secret_is_found_in_every_notation(spelt: str) -> None:
    assert redact_secrets(f"a {spelt} b", {SECRET}) == f"a {HIDDEN} b"


def test_secret_with_a_lone_surrogate_or_a_slash_is_found() -> None:
    half = "ab\ud800cd"
    assert redact_secrets(f"x {half} y", {half}) == f"x {HIDDEN} y"
    assert redact_secrets("x ab%3Fcd y", {half}) == f"x {HIDDEN} y"
    assert redact_secrets("x ab%20cd%2Fef y", {"ab cd/ef"}) == f"x {HIDDEN} y"


def test_non_string_keys_are_kept() -> None:
    assert redact_value({1: "abc", "abc": 2}, {"abc"}) == {1: HIDDEN, HIDDEN: 2}


def test_secret_argument_is_identified_by_its_path() -> None:
    args = {"card": {"pin": "9400x"}, "pin": "9400x", "memos": ["9400x"]}
    found = redact_arguments(args, ("card.pin",), {"9400x"})
    assert found == {"card": {"pin": "9400x"}, "pin": HIDDEN, "memos": [HIDDEN]}


def test_nested_value_is_masked_only_at_its_path() -> None:
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


def test_part_of_the_arguments_is_redacted_by_its_path() -> None:
    args = {"card": {"pin": "9400x", "memo": "is 9400x"}, "logins": [{"pin": "9400x", "note": "9400x"}], "memo": None}
    names = ("card.pin", "logins.pin")
    assert redact_arguments(args, names, {"9400x"}) == {
        "card": {"pin": "9400x", "memo": f"is {HIDDEN}"},
        "logins": [{"pin": "9400x", "note": HIDDEN}],
        "memo": None,
    }
    part = redact_arguments(args["card"], names, {"9400x"}, "card")
    assert part == {"pin": "9400x", "memo": f"is {HIDDEN}"}


def test_arguments_that_repeat_a_secret_are_named_by_path() -> None:
    args = {
        "pin": "hunter2", "note": "it is hunter2", "plain": "else", "to": {"name": "hunter2", "pin": "hunter2"},
        "lines": [{"text": "x"}, {"text": "hunter2"}], "count": 3,
    }  # fmt: skip
    names = {"pin", "to.pin"}
    repeats = names_of_repeats(args, names)
    assert repeats == {"note", "to.name", "lines.text"}
    assert names_of_repeats(args | {"pin": "", "to": {}}, names) == frozenset()
    assert names_of_repeats(args, ()) == frozenset()


def test_longer_secret_is_masked_first() -> None:
    assert redact_secrets("a 9400-extra b 9400", {"9400", "9400-extra"}) == f"a {HIDDEN} b {HIDDEN}"


def test_texts_of_three_characters_in_every_container_are_found() -> None:
    value = {"a": ("one", {"two"}), "b": frozenset({"six"}), "c": bytearray(b"ten\xff"), "d": 123, "e": 12, "f": False}
    assert set(texts_of(value)) == {"one", "two", "six", "ten", "123"}


def test_short_texts_and_booleans_are_no_secrets() -> None:
    """Masking every `1` would only make a text unreadable."""
    values = secret_values({"a": ["x", "ab", "abc", 12, 4711, True, None, {"b": b"bytes"}], "c": "open"}, ("a",))
    assert values == {"abc", "4711", "bytes"}
    assert list(texts_of("ab")) == []


def test_json_value_is_shown_without_secrets() -> None:
    """A number is masked only if it is the whole secret, so that other numbers stay intact."""
    value = {"abc": ["x abc", 4711, 14711, True, None, {"n": 4711.5}]}
    found = redact_value(value, {"abc", "4711"})
    assert found == {HIDDEN: [f"x {HIDDEN}", HIDDEN, 14711, True, None, {"n": 4711.5}]}
    assert redact_value(value, ()) is value


def test_text_too_expensive_to_search_is_withheld() -> None:
    """Thousands of secrets against a large text would block the worker."""
    many = {f"secret-{number}" for number in range(2_000)}
    assert redact_secrets("x" * (REDACTION_CHARS // len(many) + 1), many) == HIDDEN
    assert redact_secrets("x" * 1_000, many) == "x" * 1_000


def test_card_shows_numbers_and_names_that_equal_a_secret() -> None:
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


def test_card_repeats_no_secret_of_another_call() -> None:
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


def test_secret_with_a_lone_surrogate_is_masked() -> None:
    # A model may propose one, and the search for it must not fail, or no card could be drawn. It raised an error
    # when the secret was encoded directly.
    assert redact_secrets("it is pin\ud800-1234", ["pin\ud800-1234"]) == "it is [hidden]"


def test_text_is_searched_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "REDACTION_CHARS", 30)
    assert redact_secrets("x" * 30, {"abc"}) == "x" * 30
    assert redact_secrets("x" * 31, {"abc"}) == HIDDEN
