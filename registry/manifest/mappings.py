"""Reads policies, and mappings given in code instead of records, through the manifest's strict sections."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.formats.record_section import record_section, to_record
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import check_keys, read_section
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.hooks import POLICY_HANDLER
from signoff.registry.import_reference import reference_of


@dataclass(frozen=True)
class TwoPolicies:
    """The policy of a program's tool, and the manifest's policy over it."""

    code: Any
    manifest: Any


def read_policies(file: YamlFile, place: Place, name: str, given: Any) -> dict[str, Any]:
    """Return the tool's fields from its policies, none without a policy. Raises `ConfigError` with file and line."""
    if isinstance(given, TwoPolicies):
        fields = read_policies(file, place, name, given.code)
        return fields | {"stricter_policy": _policy(file, place, name, given.manifest)}
    if given is None:
        return {}
    function = given if callable(given) else given.get("handler") if isinstance(given, Mapping) else None
    if not callable(function):
        return {"requires_approval": _policy(file, place, name, given)}
    flaw = POLICY_HANDLER.problem(function)
    if not getattr(function, "__name__", "").isidentifier():
        flaw = flaw or "has no name for the audit log; write it as a `def`"
    if flaw:
        raise file.error(place, f"the policy of tool `{name}` is a function that {flaw}", tool_name=name)
    data = {**(given if isinstance(given, Mapping) else {}), "handler": reference_of(function)}
    return {"requires_approval": _policy(file, place, name, data), "policy_function": function}


def _policy(file: YamlFile, place: Place, name: str, data: Any) -> ApprovalPolicy | bool:
    if isinstance(data, bool | ApprovalPolicy):
        return data
    what = f"`requires_approval` of tool `{name}`"
    if not isinstance(data, Mapping):
        raise file.error(place, f"{what} must be `true`, `false` or a policy", tool_name=name)
    check_keys(file, place, ApprovalPolicy, data, what)
    try:
        return ApprovalPolicy.model_validate(data)
    except ConfigError as error:
        inner = (*place, *str(error.context.get("field", "")).split("."))
        raise file.error(inner, f"{what}: {error.message}", **error.context) from None
    except ValidationError:
        raise file.error(place, f"{what} must be `true`, `false` or a policy", tool_name=name) from None


def read_mapping(name: str, key: str, given: Any, record: type[Any] | None, site: str) -> dict[str, Any]:
    """Return the fields from `key` of the tool `name`: its `record`, or without one its policy.

    Raises `RegistrationError` that begins with `site`, the tool's `file:line`.
    """
    path, _, line = site.rpartition(":")
    file = YamlFile(path or "a tool", None, {(): int(line or 1)})
    try:
        if record is None:
            return read_policies(file, (), name, given)
        section = read_section(file, (), record_section(record), _plain(given), f"`{key}` of tool `{name}`")
        return {key: to_record(section)}
    except ConfigError as error:
        context = {**error.context, "tool_name": name, "field": key, "value": given, "site": site}
        raise RegistrationError(error.message, **context) from None


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
