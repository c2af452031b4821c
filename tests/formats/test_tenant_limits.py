import pytest
from tables import table

from signoff.formats.replace import replace
from signoff.formats.tenant_limits import NO_LIMITS, RateLimit, TenantLimit, parse_tenant_limits

EXAMPLE = "; write limits as in `starts=100/minute, waiting=2000, deliveries=600/minute; acme: starts=500/minute, "


def test_tenant_limits_override_the_common_ones() -> None:
    limits = parse_tenant_limits(
        " starts=100/minute, waiting=2000,deliveries = 5 / second ; acme: starts=7/day, waiting=off;beta:deliveries=off"
    )
    each = TenantLimit(
        starts=RateLimit(count=100, period="minute"), waiting=2000, deliveries=RateLimit(count=5, period="second")
    )
    assert limits.of("main") == each
    assert limits.of("acme") == replace(each, starts=RateLimit(count=7, period="day"), waiting=None)
    assert limits.of("beta") == replace(each, deliveries=None)
    assert [RateLimit(count=1, period=each).milliseconds for each in ("second", "minute", "hour", "day")] == [
        1_000, 60_000, 3_600_000, 86_400_000
    ]  # fmt: skip


def test_single_tenant_may_have_limits() -> None:
    limits = parse_tenant_limits("acme: waiting=3")
    assert (limits.of("main"), limits.of("acme")) == (TenantLimit(), TenantLimit(waiting=3))
    assert parse_tenant_limits("  ") == NO_LIMITS
    assert (NO_LIMITS.limit_deliveries, parse_tenant_limits("a: deliveries=1/day").limit_deliveries) == (False, True)


@table(
    ("text", "what"),
    ("start=1/minute", "`start=1/minute` is no limit"),
    ("starts=1/minute,", "`` is no limit"),
    ("starts=1/minute, starts=2/minute", "`starts` stands there twice"),
    ("starts=10", "`10` is not so many a second, minute, hour, day"),
    ("starts=10/week", "`10/week` is not so many a second, minute, hour, day"),
    ("starts=0/minute", "`0` is no number from 1 to 100000"),
    ("starts=٣/minute", "`٣` is no number from 1 to 100000"),
    ("waiting=100001", "`100001` is no number from 1 to 100000"),
    ("waiting=-1", "`-1` is no number from 1 to 100000"),
    ("waiting=10/minute", "`10/minute` is no number from 1 to 100000"),
    ("waiting=1; waiting=2", "`waiting=2` names no tenant"),
    ("waiting=1;", "`` names no tenant"),
    ("a b: waiting=1", "`a b: waiting=1` names no tenant"),
    (": waiting=1", "`: waiting=1` names no tenant"),
    ("acme: waiting=1; acme: waiting=2", "the tenant `acme` stands there twice"),
)
def test_invalid_limit_error_shows_an_example(text: str, what: str) -> None:
    with pytest.raises(ValueError, match="write limits as in") as refused:
        parse_tenant_limits(text)
    assert str(refused.value).startswith(what + EXAMPLE)
