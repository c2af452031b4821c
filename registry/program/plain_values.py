"""Converts values of a Python declaration to values of a manifest section."""

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.tool import Tool


def plain(value: Any) -> Any:
    """Return lists for tuples and sets, mappings for records, seconds for `timedelta`.

    Tools, policies and functions stay: sections accept them.
    """
    if isinstance(value, Tool | ApprovalPolicy):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: plain(vars(value)[each.name])
            for each in dataclasses.fields(value)
            if vars(value)[each.name] != _default(each)
        }
    return value


def _default(given: "dataclasses.Field[Any]") -> object:
    return given.default if given.default_factory is dataclasses.MISSING else given.default_factory()
