"""The base of every record that crosses a process border or lies in a workflow history."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

_NOTHING: Final[set[str]] = set()


class FrozenModel(BaseModel):
    """A frozen record. Records grow by fields with defaults only: histories of years ago must load."""

    # Unknown fields are passed over: while versions change, older workers replay what newer ones wrote.
    model_config = ConfigDict(frozen=True, extra="ignore")

    def model_post_init(self, context: Any) -> None:
        """Forgets which fields were given: nothing asks, and those sets are a tenth of what a waiting turn weighs."""
        # One set for all, which nothing changes: a copy gets its own. `exclude_unset` would leave out every field here:
        # what is to be short is dumped with `exclude_defaults`.
        object.__setattr__(self, "__pydantic_fields_set__", _NOTHING)

    def on_wire(self) -> bytes:
        """Returns the record as JSON, as histories hold it: without what readers derive anew."""
        return self.__pydantic_serializer__.to_json(self, exclude_computed_fields=True)


class ActivityMessage(FrozenModel):
    """A message between a workflow and its activities. What holds its default is not written, at any depth.

    Histories are made of these, and half of each was nulls and empties. A default is so part of the wire:
    `tests/contracts/activity_messages.json` lists them all, and none that is released may change.
    """

    def on_wire(self) -> bytes:
        """Returns the message as JSON, as histories hold it."""
        # `pydantic_core.to_json`, by which the SDK writes, cannot leave out defaults.
        return self.__pydantic_serializer__.to_json(self, exclude_defaults=True, exclude_computed_fields=True)
