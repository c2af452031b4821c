"""The base of every record that crosses a process border or is part of a workflow history."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

_NOTHING: Final[set[str]] = set()


class FrozenModel(BaseModel):
    """A frozen record. New fields need defaults: histories of years ago must load."""

    # Ignore unknown fields: during an upgrade, older workers replay records of newer ones.
    model_config = ConfigDict(frozen=True, extra="ignore")

    def model_post_init(self, context: Any) -> None:
        """Drop the set of given fields: it takes a tenth of a waiting turn's memory."""
        # All records share one unmodified set, and a copy gets its own. Do not use `exclude_unset`, which would omit
        # every field. Use `exclude_defaults` for short output.
        object.__setattr__(self, "__pydantic_fields_set__", _NOTHING)

    def on_wire(self) -> bytes:
        """Return the record as histories hold it, without computed fields."""
        return self.__pydantic_serializer__.to_json(self, exclude_computed_fields=True)


class ActivityMessage(FrozenModel):
    """A message between a workflow and its activities. Default values are omitted, at any depth.

    Histories consist of these, and half of each was nulls and empties. A default is therefore part of the wire format:
    `tests/contracts/activity_messages.json` lists them all, and no released one may change.
    """

    def on_wire(self) -> bytes:
        # The SDK's `pydantic_core.to_json` cannot omit defaults.
        return self.__pydantic_serializer__.to_json(self, exclude_defaults=True, exclude_computed_fields=True)
