"""`respond`, the tool with which a model ends its turn. Every actor has it automatically."""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from signoff.contracts.activity_messages import ModelTool
from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import MAX_PARTS
from signoff.contracts.message import PART_TYPES, RESERVED_PART_TYPES, WITHHELD_PART_TYPES, part_types
from signoff.contracts.names import RESPOND
from signoff.contracts.requests import ANSWER_ALIASES, resolve_aliases
from signoff.formats.json_schema import CompiledSchema, compile_schema
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.registry.gates.argument_check import problems_text
from signoff.registry.results.domain_data import DOMAIN_DATA, DomainMerge, merge_data

RespondState: TypeAlias = Literal["complete", "clarifying", "awaiting", "delegated", "passed"]

_STATES: Final[dict[RespondState, str]] = {
    "complete": "done",
    "clarifying": "you ask the user something",
    "awaiting": "you continue when a later result arrives",
    "delegated": "someone else does it, and you continue when they report",
    "passed": "the actor in `passTo` answers from here on",
}
_DATA: Final = "domainData"
_PART_WORDS: Final = {"partType": "type"}
_PART_TYPE: Final = re.compile(r"^[a-z][a-z0-9-]{0,39}\Z")


class RespondPayload(NamedTuple):
    """The answer of a model."""

    state: RespondState
    text: str
    pass_to: str = ""
    """The actor that takes over. Set exactly if `state` is `passed`."""
    parts: tuple[tuple[str, Any], ...] = ()
    """Types and contents of the additional parts."""


@dataclass(frozen=True)
class RespondForm:
    """`respond` of one actor: its definition for the model, and the parser of answers."""

    offer: ModelTool
    schema: CompiledSchema
    peers: tuple[str, ...]
    merge: DomainMerge = "replace"
    """How the data of an answer are merged with earlier data."""

    def parse(self, args: Any, before: Any = None) -> RespondPayload | str:
        """Return the payload, or an error text for the model.

        `before` is the data so far. Data of the answer become its first part.
        """
        try:
            args = _resolve_answer(args)
        except ValueError as error:
            problems = [str(error)]
        else:
            misfits = self.schema.check(args)
            problems = [problems_text(misfits)] if misfits else self._problems(args)
        if problems:
            return f"respond was not understood: {'; '.join(problems)}. Call respond again with a `text`."
        parts = tuple((part["type"], part["content"]) for part in args.get("parts", ()))
        if _DATA in args:
            parts = ((DOMAIN_DATA, merge_data(before, args[_DATA], self.merge)), *parts)
        state = cast(RespondState, args.get("state", "complete"))
        return RespondPayload(state, args["text"], args.get("passTo", ""), parts)

    def _problems(self, args: dict[str, Any]) -> list[str]:
        complete = args.get("state", "complete") == "complete"
        if complete and not args["text"].strip() and not args.keys() & {"parts", _DATA}:
            return ["`text` is empty, so the user would read nothing"]
        if (args.get("state") == "passed") == ("passTo" in args):
            return []
        listed = ", ".join(f"`{peer}`" for peer in self.peers)
        return [f"`passTo` is for the state `passed` only; it is one of {listed}"]


def _resolve_answer(args: Any) -> Any:
    """Use the schema's names and places if a model uses others."""
    if not isinstance(args, dict):
        return args
    args = resolve_aliases(args, ANSWER_ALIASES)
    parts = args.get("parts")
    return args | {"parts": [_part(part) for part in parts]} if isinstance(parts, list) else args


def _part(part: Any) -> Any:
    """The part's type is next to its content or in its `metadata`, as `type` or `partType`."""
    if not isinstance(part, dict):
        return part
    metadata = part.get("metadata")
    # Only if it has no other keys, which would be lost.
    if isinstance(metadata, dict) and set(metadata) == {"partType"}:
        part = {name: value for name, value in part.items() if name != "metadata"}
        part = resolve_aliases(part, _PART_WORDS)
        return resolve_aliases(part | metadata, _PART_WORDS)
    return resolve_aliases(part, _PART_WORDS)


def declared_part_types(declared: Iterable[str]) -> tuple[str, ...]:
    """Return all part types of an installation. Raises `ConfigError`."""
    more = tuple(declared)
    for place, name in enumerate(more):
        if not isinstance(name, str) or _PART_TYPE.match(name) is None:
            why = f"part type `{name}` is no name: lower-case letters, digits and hyphens, at most 40"
        elif name in (*PART_TYPES, *RESERVED_PART_TYPES) or name in more[:place]:
            why = f"part type `{name}` exists already; leave it out"
        else:
            continue
        raise ConfigError(why, field="part_types", value=name)
    return part_types(more)


def withheld_part_types(declared: Iterable[str], types: Collection[str]) -> frozenset[str]:
    """Return all part types that peers get only if they accept them. Raises `ConfigError` for unknown ones."""
    more = frozenset(declared)
    for name in sorted(more.difference(types)):
        why = f"`requires_peer_consumes` names {quote_name(name)}, which is no type of parts{did_you_mean(name, types)}"
        raise ConfigError(why, field="requires_peer_consumes", value=name)
    return more.union(WITHHELD_PART_TYPES)


# `data` is a string because cache keys must be hashable. Each schema is compiled once.
@lru_cache(maxsize=256)
def respond_form(
    peers: tuple[str, ...] = (), types: tuple[str, ...] = PART_TYPES, data: str = "", merge: DomainMerge = "replace"
) -> RespondForm:
    """`data` is the text of a JSON Schema for the answer's data, or "".

    Raises `RegistrationError` for a schema that is not valid inside another one.
    """
    schema = _schema(peers, types) if not data else _with_data(_schema(peers, _without_data(types)), json.loads(data))
    offer = ModelTool(
        name=RESPOND,
        description="Answer the user and end your turn. Call it alone: other calls in the same reply are not executed.",
        parameters=schema,
    )
    return RespondForm(offer, compile_schema(schema, tool_name=RESPOND), peers, merge)


def _without_data(types: Sequence[str]) -> tuple[str, ...]:
    # With a schema, there is only one way to give such data.
    return tuple(name for name in types if name != DOMAIN_DATA)


def _with_data(schema: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Add the property for data, and move its definitions to the top, where references look."""
    inner = {name: each for name, each in data.items() if name not in ("$defs", "$schema")}
    inner.setdefault("description", "The data of this answer, for programs.")
    whole = schema | {"properties": {**schema["properties"], _DATA: inner}}
    return whole | {"$defs": data["$defs"]} if "$defs" in data else whole


def _schema(peers: Sequence[str], types: Sequence[str]) -> dict[str, Any]:
    states = {state: why for state, why in _STATES.items() if peers or state != "passed"}
    properties: dict[str, Any] = {
        "text": {"type": "string", "description": "What the user reads."},
        "state": {
            "type": "string",
            "enum": list(states),
            "default": "complete",
            "description": ". ".join(f"{state}: {why}" for state, why in states.items()) + ".",
        },
        "parts": {
            "type": "array",
            "maxItems": MAX_PARTS,
            "description": "Additional parts, for programs.",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": list(types)},
                    "content": {"description": "Any JSON."},
                },
                "required": ["type", "content"],
                "additionalProperties": False,
            },
        },
    }
    if peers:
        why = "The actor that takes over; only with the state `passed`."
        properties["passTo"] = {"type": "string", "enum": list(peers), "description": why}
    return {"type": "object", "properties": properties, "required": ["text"], "additionalProperties": False}
