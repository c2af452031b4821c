import re
from typing import Any

import pytest
from tables import table

from signoff.contracts.errors import RegistrationError
from signoff.formats.json_schema import compile_schema

EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
"""The email pattern that zod 4 writes."""


def taken(pattern: str, text: str) -> bool:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"pattern": pattern}}}
    return not compile_schema(schema).check({"a": text})


@table(
    "text",
    "ana@corp.com",
    "a.b@c.co.uk",
    ".a@b.com",
    "a..b@c.de",
    "a.@b.com",
    "a@b",
    "a@b.com\nx",
    "\na@b.com",
    "",
    "@b.com",
)
def test_leading_lookaheads_keep_their_meaning(text: str) -> None:
    assert taken(EMAIL, text) is (re.search(EMAIL.replace("$", r"\Z"), text) is not None)
    strong = r"^(?=.*\d)(?=.*[a-z(])(?!.*[|)])[a-z\d(|)]{3,}$"
    for password in (text, "ab1", "a1|", "a1)", "abc", "123", "a(1"):
        assert taken(strong, password) is (re.search(strong.replace("$", r"\Z"), password) is not None)


def test_long_text_is_matched_in_linear_time() -> None:
    assert not taken(EMAIL, "a." * 200_000 + "@")


@table("pattern", r"^(?!a)b|c", r"a(?=b)", r"^(?!a)*b$", r"^(?!(?=a)b)c", r"^(?=(a))\1$", r"^(?!a")
def test_other_lookaround_is_refused(pattern: str) -> None:
    with pytest.raises(RegistrationError, match="which RE2 cannot read"):
        taken(pattern, "")


@table(
    ("pattern", "text", "found"),
    (r"^[\u0041-\u005a]+$", "ABZ", True),
    (r"^[\u0041-\u005a]+$", "abz", False),
    (r"^\ud83d\ude00\u{1F600}$", "\U0001f600\U0001f600", True),
    (r"^\\u0041$", r"\u0041", True),
)
def test_code_point_escapes_are_read(pattern: str, text: str, found: bool) -> None:
    assert taken(pattern, text) is found
