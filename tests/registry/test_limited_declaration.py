from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from registry_kit import a_tool
from tables import table

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.contracts.usage import UsageLimit, exhausted_message
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.normal_form import normal_form
from signoff.registry.registry import ToolRegistry

TOOLS = """
version: 1
tools:
  find:
    handler: limited_code:find
    input_schema: {{type: object}}
    scope: generalist
    {lines}
"""


def manifest(tmp_path: Path, *lines: str) -> Any:
    (tmp_path / "limited_code.py").write_text('async def find(args, context):\n    """Find something."""\n')
    (tmp_path / "m.yaml").write_text(TOOLS.format(lines="\n    ".join(lines)))
    return load_manifest(tmp_path / "m.yaml")


@table("key", "usage_limit", "usageLimit")
def test_manifest_declares_hours_and_usage_limit(tmp_path: Path, key: str) -> None:
    one = "Mo-Fr 08:00-18:00 Europe/Lisbon"
    catalog = manifest(tmp_path, f"hours: {one}", f"{key}: {{count: 3, per: session, period: 1d}}")
    tool = catalog.tool("find")
    assert tool is not None
    assert (tool.hours, tool.usage_limit) == ((one,), UsageLimit(3, "session", 86_400.0))
    found = normal_form(catalog)["tools"]["find"]
    assert (found["hours"], found["usage_limit"]) == ([one], {"count": 3, "per": "session", "period": 86_400.0})
    both = manifest(tmp_path, f"hours: [{one}, Sa 10:00-12:00 UTC]").tool("find")
    assert both.hours == (one, "Sa 10:00-12:00 UTC")


@table(
    ("line", "expected"),
    ("hours: Mon 08:00-18:00 UTC", r"m\.yaml:8: .*has `hours` that cannot be read: `Mon` is no day"),
    ("hours: [Mo 08:00-18:00 UTC, Mo 08:00-18:00 Europe/Lisboa]", r"m\.yaml:8: .*no time zone"),
    ("hours: 8", r"m\.yaml:8"),
    ("usage_limit: {count: 0, per: user, period: 1d}", r"m\.yaml:8"),
    ("usage_limit: {count: 3, per: person, period: 1d}", r"must be `user`, `session` or `tenant`"),
    ("usage_limit: {count: 3, per: user, period: a day}", r"`a day` is not a duration; write `24h`"),
    ("usage_limit: {count: 3, per: user}", r"is missing"),
    ("usage_limit: {count: 3, per: user, period: 1d, burst: 2}", r"unknown key `burst`"),
)
def test_invalid_limit_is_an_error_with_its_line(tmp_path: Path, line: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        manifest(tmp_path, line)


@table(
    ("fields", "expected"),
    ({"hours": 8}, "needs `hours` to be a list of texts"),
    ({"hours": ("Mo",)}, "has `hours` that cannot be read: `Mo` is not made of days, hours and a time zone"),
    ({"usage_limit": 3}, "needs `usage_limit` to be `count`, `per` and `period`"),
    ({"usage_limit": UsageLimit(0, "user", 60)}, "`count` must be a whole number from 1 on"),
    ({"usage_limit": UsageLimit(True, "user", 60)}, "`count` must be"),
    ({"usage_limit": UsageLimit(1, "users", 60)}, "`per` must be `user`, `session` or `tenant`"),  # type: ignore[arg-type]
    ({"usage_limit": UsageLimit(1, "user", 0)}, "`period` must be more than 0 and at most 366 days"),
    ({"usage_limit": UsageLimit(1, "user", float("inf"))}, "`period` must be more than 0"),
    ({"usage_limit": UsageLimit(1, "user", "a day")}, "`count`, `per` and `period`"),  # type: ignore[arg-type]
)
def test_invalid_limit_declaration_is_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(RegistrationError, match=expected):
        ToolRegistry([a_tool(**fields)])


def test_hours_and_limits_are_part_of_the_hash_only() -> None:
    plain, hours, limit, more = (
        a_tool(**fields)
        for fields in (
            {},
            {"hours": ("Mo 08:00-18:00 UTC",)},
            {"usage_limit": UsageLimit(1, "user", 60)},
            {"usage_limit": UsageLimit(1, "user", 60.5)},
        )
    )
    assert len({ToolRegistry([each]).hash for each in (plain, hours, limit, more)}) == 4
    same = a_tool(usage_limit=UsageLimit(1, "user", 60.0))
    assert ToolRegistry([same]).hash == ToolRegistry([limit]).hash
    assert len({each.definition for each in (plain, hours, limit, more)}) == 1


@table(
    ("limit", "again", "words"),
    (UsageLimit(1, "user", 60), (0, 0), "was used once for this user within 1m, which is all it may be; it is "),
    (UsageLimit(3, "session", 90_061), (0, 0), "was used 3 times in this session within 1d1h1m1s, which"),
    (UsageLimit(2, "tenant", 0.5), (5, 0), "in this tenant within 1s, which is all it may be; it is possible again "
     "at 2026-01-05 12:00:05 UTC. Do without it until then"),
    # Fractions of a second round up: a retry at that time finds a free use.
    (UsageLimit(2, "tenant", 60), (5, 1), "at 2026-01-05 12:00:06 UTC"),
)  # fmt: skip
def test_exhausted_message_states_when_the_tool_is_available_again(
    limit: UsageLimit, again: tuple[int, int], words: str
) -> None:
    at = datetime(2026, 1, 5, 12, 0, *again, tzinfo=UTC)
    assert words in exhausted_message("pay", limit, at)
