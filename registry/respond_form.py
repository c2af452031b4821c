"""`respond`, the tool by which a model ends its turn: every actor has it, nobody registers it (B46)."""

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
    "awaiting": "something is to follow, and you go on when it is there",
    "delegated": "somebody else does it, and you go on when they report",
    "passed": "the actor in `passTo` answers from here on",
}
_DATA: Final = "domainData"
_PART_WORDS: Final = {"partType": "type"}
_PART_TYPE: Final = re.compile(r"^[a-z][a-z0-9-]{0,39}\Z")


class RespondPayload(NamedTuple):
    """The answer of a model."""

    state: RespondState
    """The state of the turn."""
    text: str
    """What the user reads."""
    pass_to: str = ""
    """The actor that goes on; set exactly where `state` is `passed`."""
    parts: tuple[tuple[str, Any], ...] = ()
    """Types and contents of what goes with the text."""


@dataclass(frozen=True)
class RespondForm:
    """`respond` of one actor: its offer to the model, and the parser of answers."""

    offer: ModelTool
    """The tool as it is offered to the model."""
    schema: CompiledSchema
    """The schema of its arguments."""
    peers: tuple[str, ...]
    """The actors that it may pass to."""
    merge: DomainMerge = "replace"
    """How the data of an answer join those that were there."""

    def parse(self, args: Any, before: Any = None) -> RespondPayload | str:
        """Parses an answer: the payload, or a sentence for the model on what is wrong. `before`: the data so far.

        Data that the answer brings are its first part.
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
            return ["`text` is empty, so that nobody is told anything"]
        if (args.get("state") == "passed") == ("passTo" in args):
            return []
        listed = ", ".join(f"`{peer}`" for peer in self.peers)
        return [f"`passTo` goes with the state `passed` and with no other; it is one of {listed}"]


def _resolve_answer(args: Any) -> Any:
    """Returns `args` under the names and places of the schema, also where a model uses others (X21, X22)."""
    if not isinstance(args, dict):
        return args
    args = resolve_aliases(args, ANSWER_ALIASES)
    parts = args.get("parts")
    return args | {"parts": [_part(part) for part in parts]} if isinstance(parts, list) else args


def _part(part: Any) -> Any:
    """Reads a part whose type may stand beside its content or in its `metadata`, as `type` or `partType`."""
    if not isinstance(part, dict):
        return part
    metadata = part.get("metadata")
    # Only where it says nothing else, which would be lost.
    if isinstance(metadata, dict) and set(metadata) == {"partType"}:
        part = {name: value for name, value in part.items() if name != "metadata"}
        part = resolve_aliases(part, _PART_WORDS)
        return resolve_aliases(part | metadata, _PART_WORDS)
    return resolve_aliases(part, _PART_WORDS)


def declared_part_types(declared: Iterable[str]) -> tuple[str, ...]:
    """Returns all part types of an installation that declares some of its own. Raises `ConfigError`."""
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
    """Returns all part types that peers get only where they take them (B79). Raises `ConfigError` for unknown ones."""
    more = frozenset(declared)
    for name in sorted(more.difference(types)):
        why = f"`requires_peer_consumes` names {quote_name(name)}, which is no type of parts{did_you_mean(name, types)}"
        raise ConfigError(why, field="requires_peer_consumes", value=name)
    return more.union(WITHHELD_PART_TYPES)


# `data` is a text because what the cache takes has to be hashable; the schema of a form is compiled once.
@lru_cache(maxsize=256)
def respond_form(
    peers: tuple[str, ...] = (), types: tuple[str, ...] = PART_TYPES, data: str = "", merge: DomainMerge = "replace"
) -> RespondForm:
    """Makes `respond` for an actor that may pass to `peers`, where answers may have parts of `types`.

    `data` is the text of a JSON Schema for data that answers may bring, or "". Raises `RegistrationError` for one that
    does not hold within another schema.
    """
    schema = _schema(peers, types) if not data else _with_data(_schema(peers, _without_data(types)), json.loads(data))
    offer = ModelTool(
        name=RESPOND,
        description="Answer the user and end your turn. Call it alone: other calls beside it are not executed.",
        parameters=schema,
    )
    return RespondForm(offer, compile_schema(schema, tool_name=RESPOND), peers, merge)


def _without_data(types: Sequence[str]) -> tuple[str, ...]:
    # Where such data have a schema there is one way to bring them.
    return tuple(name for name in types if name != DOMAIN_DATA)


def _with_data(schema: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Adds to `schema` the property for data; definitions that theirs refers to come to the top, where it looks."""
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
            "description": "What goes with the text, for programs.",
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
        why = "Who answers from here on; only with the state `passed`."
        properties["passTo"] = {"type": "string", "enum": list(peers), "description": why}
    return {"type": "object", "properties": properties, "required": ["text"], "additionalProperties": False}
