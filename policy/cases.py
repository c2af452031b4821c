"""Policy cases: data with a sentence each, judged as calls would be."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from signoff.contracts.errors import ConfigError
from signoff.policy.compiled_policy import CompiledPolicy, PolicyVerdict

Expected = Literal["auto", "ask", "deny"]
_KEYS = ("name", "tool", "args", "ctx", "expect")


@dataclass(frozen=True)
class Case:
    """One case: `name` is a sentence, `args` and `ctx` are plain JSON."""

    name: str
    tool: str
    args: Mapping[str, Any]
    ctx: Mapping[str, Any]
    expect: Expected


@dataclass(frozen=True)
class CaseResult:
    """A case and the verdict it met."""

    case: Case
    verdict: PolicyVerdict

    @property
    def passed(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict.verdict == self.case.expect


def read_case(data: Mapping[str, Any], number: int = 1) -> Case:
    """One case from a plain mapping. Raises `ConfigError` on unknown, missing or odd keys; `number` counts from 1."""
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
    expect = cast(Expected, data["expect"])
    return Case(data["name"], data["tool"], data.get("args", {}), data.get("ctx", {}), expect)


def run_cases(cases: Sequence[Mapping[str, Any]], policies: Mapping[str, CompiledPolicy]) -> tuple[CaseResult, ...]:
    """Judges every case by its tool's policy, in order. Raises `ConfigError` for an unknown tool or an odd case."""
    return tuple(_run(read_case(data, number), policies) for number, data in enumerate(cases, 1))


def _run(case: Case, policies: Mapping[str, CompiledPolicy]) -> CaseResult:
    policy = policies.get(case.tool)
    if policy is None:
        near = difflib.get_close_matches(case.tool, policies, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "the manifest declares no such tool"
        raise ConfigError(f"case `{case.name}`: unknown tool `{case.tool}`; {hint}", field="tool", value=case.tool)
    return CaseResult(case, policy.judge(case.args, case.ctx))
