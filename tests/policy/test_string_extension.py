from typing import Any

import pytest
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.policy.expression import Compiler, facts
from signoff.policy.schema_shapes import DataShape

ANY = DataShape("map")


def answers(text: str, args: Any) -> list[str]:
    expression = Compiler({"args": ANY}, "a test").compile("deny_if", text)
    return [each.kind for each in expression.evaluate_here(facts({"args": args}))]


@table(
    ("rule", "args"),
    ("args.email.lowerAscii().endsWith('@corp.example')", {"email": "Ana@Corp.example"}),
    ("args.name.upperAscii() == 'XäSS'", {"name": "xäss"}),
    ("args.email.split('@')[1] == 'corp.example'", {"email": "ana@corp.example"}),
    ("args.email.split('') == ['a', 'b']", {"email": "ab"}),
    ("args.to.join(',').size() == 3", {"to": ["a", "b"]}),
    ("args.to.join('') == ''", {"to": []}),
    ("type(args.count) == int", {"count": 3}),
    ("type(args.count) != int && type(args.count) == double", {"count": 3.5}),
    ("type(args.count) == bool", {"count": True}),
    ("type(args.count) != uint && type(args.count) != bool", {"count": 3}),
)
def test_both_engines_agree_on_string_functions_and_types(rule: str, args: Any) -> None:
    assert answers(rule, args) == ["true", "true"]


@table(
    "rule",
    "args.a.lowerAscii() == ''",
    "args.a.split('x') == []",
    "args.a.join(',') == ''",
    "'x'.split(args.a) == []",
)
@table("value", 1, None, True, {"a": 1}, [1])
def test_string_function_on_other_types_is_an_error_in_both_engines(rule: str, value: Any) -> None:
    assert answers(rule, {"a": value}) == ["error", "error"]


@table(
    ("rule", "words", "column"),
    ("args.labels[?'tier'].orValue('none') == 'none'", "optionals are not here", 12),
    ("args.?cc.orValue('') == ''", "optionals are not here", 5),
    ("cidr('10.0.0.0/8').containsIP(args.ip)", "functions of addresses are not here", 5),
    ("quantity(args.memory).isLessThan(quantity('1Gi'))", "quantities and versions are not here", 9),
    ("semver(args.version).isLessThan(semver('2.0.0'))", "quantities and versions are not here", 7),
    ("args.name.trim() == 'x'", "CEL's string extension is limited to", 15),
)
def test_missing_extension_error_suggests_an_alternative(rule: str, words: str, column: int) -> None:
    with pytest.raises(ConfigError) as refused:
        answers(rule, {})
    assert words in refused.value.message
    assert "write" in refused.value.message or "have the tool" in refused.value.message
    assert refused.value.context["column"] == column
