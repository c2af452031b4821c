"""Runs policy cases: named example calls with the expected verdict."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, cast
from zoneinfo import ZoneInfo

from signoff.contracts.errors import ConfigError
from signoff.policy.compiled_policy import CompiledPolicy, PolicyVerdict
from signoff.policy.context_shapes import now_record

Expected = Literal["auto", "ask", "deny"]
UTC_ZONE: Final = ZoneInfo("UTC")
_KEYS = ("name", "tool", "args", "ctx", "now", "expect", "quorum")


@dataclass(frozen=True)
class PolicyCase:
    """One case.

    `name` is a sentence, `args` and `ctx` are plain JSON, `now` is the time of judging.
    """

    name: str
    tool: str
    args: Mapping[str, Any]
    ctx: Mapping[str, Any]
    expect: Expected
    now: datetime | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    """Expected terms by name."""

    def context_in(self, zone: ZoneInfo) -> dict[str, Any]:
        """Without `now`, the context has no time."""
        return {**self.ctx, **({} if self.now is None else {"now": now_record(self.now, zone)})}


@dataclass(frozen=True)
class PolicyCaseResult:
    """A case and its verdict."""

    case: PolicyCase
    verdict: PolicyVerdict

    @property
    def passed(self) -> bool:
        as_expected = all(getattr(self.verdict.terms, name) == value for name, value in self.case.terms.items())
        return self.verdict.verdict == self.case.expect and as_expected


def read_case(data: Mapping[str, Any], number: int = 1) -> PolicyCase:
    """Raise `ConfigError` for unknown, missing or invalid keys. `number` counts from 1."""
    where = f"case {number}"
    for key in data:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "allowed are " + ", ".join(f"`{each}`" for each in _KEYS)
            raise ConfigError(f"{where}: unknown key `{key}`; {hint}", field=str(key), value=data[key])
    for key in ("name", "tool", "expect"):
        if not isinstance(data.get(key), str) or not data[key]:
            raise ConfigError(f"{where}: `{key}` must be a text that is not empty", field=key, value=data.get(key))
    for key in ("args", "ctx"):
        if not isinstance(data.get(key, {}), Mapping):
            raise ConfigError(f"{where}: `{key}` must be a mapping", field=key, value=data[key])
    if data["expect"] not in ("auto", "ask", "deny"):
        message = f"{where}: `expect` is `{data['expect']}`; allowed are `auto`, `ask`, `deny`"
        raise ConfigError(message, field="expect", value=data["expect"])
    quorum = data.get("quorum")
    if quorum is not None and type(quorum) is not int:
        raise ConfigError(f"{where}: `quorum` must be a number of people", field="quorum", value=quorum)
    expect, now = cast(Expected, data["expect"]), _instant(data.get("now"), where)
    terms = {} if quorum is None else {"quorum": quorum}
    return PolicyCase(data["name"], data["tool"], data.get("args", {}), data.get("ctx", {}), expect, now, terms)


def run_cases(
    cases: Sequence[Mapping[str, Any]], policies: Mapping[str, CompiledPolicy], zone: ZoneInfo = UTC_ZONE
) -> tuple[PolicyCaseResult, ...]:
    """Judge cases in order, and return the results. `passed` says whether one fits.

    `zone` is that of `now`. Raises `ConfigError` for an unknown tool or an invalid case, not for a failed one.
    """
    return tuple(_run(read_case(data, number), policies, zone) for number, data in enumerate(cases, 1))


def _instant(given: object, where: str) -> datetime | None:
    # YAML reads an unquoted time as a datetime, naive if it has no zone.
    try:
        at = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        at = ""
    if at is not None and not (isinstance(at, datetime) and at.tzinfo is not None):
        message = f"{where}: `now` must be a time with its zone, such as `2026-11-21T10:00:00+01:00`"
        raise ConfigError(message, field="now", value=given)
    return at


def _run(case: PolicyCase, policies: Mapping[str, CompiledPolicy], zone: ZoneInfo) -> PolicyCaseResult:
    policy = policies.get(case.tool)
    if policy is None:
        near = difflib.get_close_matches(case.tool, policies, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "the manifest declares no such tool"
        raise ConfigError(f"case `{case.name}`: unknown tool `{case.tool}`; {hint}", field="tool", value=case.tool)
    return PolicyCaseResult(case, policy.judge(case.args, case.context_in(zone), {"name": case.ctx.get("actor", "")}))
