"""The data of answers: how those of one answer join what was there (B58)."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.errors import ConfigError
from signoff.formats.json_schema import compile_schema

DomainMerge: TypeAlias = Literal["replace", "append", "deep-merge"]

DOMAIN_DATA: Final = "domain-data"
"""The type of the part that holds them."""
_MERGES: Final = get_args(DomainMerge)


def merge_data(before: Any, new: Any, how: DomainMerge) -> Any:
    """Joins the data of an answer to those before it, without changing either.

    `replace`: the new ones. `append`: lists are joined, of objects those under one name. `deep-merge`: objects become
    one at every depth. What is not of a kind with what was there takes its place.
    """
    if how == "append" and isinstance(before, list) and isinstance(new, list):
        return [*before, *new]
    if how == "replace" or not isinstance(before, Mapping) or not isinstance(new, Mapping):
        return new
    return {**before, **{name: _field(before, name, each, how) for name, each in new.items()}}


def _field(before: Mapping[str, Any], name: str, new: Any, how: DomainMerge) -> Any:
    if name not in before:
        return new
    # Of `append` only lists join here, so that objects are gone through one level deep; further is `deep-merge`.
    joins = isinstance(new, list if how == "append" else Mapping)
    return merge_data(before[name], new, how) if joins else new


def schema_text(schema: Mapping[str, Any] | None) -> str:
    """Checks a schema of such data and returns it as one text, "" for none. Raises `ConfigError`."""
    if schema is None:
        return ""
    return canonical_json(compile_schema(schema, field="domain_data", of_object=False).schema).decode()


def check_merge(how: str) -> None:
    """Raises `ConfigError` for an unknown way of joining."""
    if how not in _MERGES:
        allowed = ", ".join(f"`{each}`" for each in _MERGES)
        raise ConfigError(f"`{how}` is no `domain_merge`; it is one of {allowed}", field="domain_merge", value=how)
