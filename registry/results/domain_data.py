"""The data of answers, and how one answer's data merge with earlier data."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.errors import ConfigError
from signoff.formats.json_schema import compile_schema

DomainMerge: TypeAlias = Literal["replace", "append", "deep-merge"]

DOMAIN_DATA: Final = "domain-data"
"""The type of the part with the data."""
_MERGES: Final = get_args(DomainMerge)


def merge_data(before: Any, new: Any, how: DomainMerge) -> Any:
    """Merge without changing either.

    `replace` keeps the new data. `append` concatenates lists, also lists under one name of objects. `deep-merge` merges
    objects at every depth. A value of another kind replaces the earlier one.
    """
    if how == "append" and isinstance(before, list) and isinstance(new, list):
        return [*before, *new]
    if how == "replace" or not isinstance(before, Mapping) or not isinstance(new, Mapping):
        return new
    return {**before, **{name: _field(before, name, each, how) for name, each in new.items()}}


def _field(before: Mapping[str, Any], name: str, new: Any, how: DomainMerge) -> Any:
    if name not in before:
        return new
    # `append` merges only lists, so objects are merged one level deep. Deeper is `deep-merge`.
    joins = isinstance(new, list if how == "append" else Mapping)
    return merge_data(before[name], new, how) if joins else new


def schema_text(schema: Mapping[str, Any] | None) -> str:
    """Check a schema of such data and return it as text, "" for none. Raises `ConfigError`."""
    if schema is None:
        return ""
    return canonical_json(compile_schema(schema, field="domain_data", of_object=False).schema).decode()


def check_merge(how: str) -> None:
    """Raises `ConfigError`."""
    if how not in _MERGES:
        allowed = ", ".join(f"`{each}`" for each in _MERGES)
        raise ConfigError(f"`{how}` is no `domain_merge`; it is one of {allowed}", field="domain_merge", value=how)
