"""What tools changed of a conversation's data and context, and how it meets what its callers say. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from signoff.contracts.frozen_model import Shape

DATA: Final = "data"
"""Where in the context collected data lies."""
UPDATE: Final = "update"
"""The gate of a call that ran and whose update is not taken."""
UPDATE_FAILED: Final = (
    "update_invalid: `{}` ran and what it does has happened, but {}, so nothing of what it would have changed of the "
    "conversation was taken. Do not call it again for that; tell the user."
)
"""What the model is told of such a call (F44); the second place says why."""


class Updates(Shape):
    """By top-level name: fields of collected data, and declared fields of the context."""

    data: dict[str, Any] = Field(default_factory=dict)
    context: dict[str, Any] = Field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """What is changed, as `data.<name>` and `<name>`."""
        return (*(f"{DATA}.{name}" for name in self.data), *self.context)

    @property
    def size(self) -> int:
        """Bytes of it as JSON."""
        text = json.dumps([self.data, self.context], ensure_ascii=False, separators=(",", ":"))
        # A history may hold half a surrogate pair; measuring must not fail a workflow task.
        return len(text.encode("utf-8", "surrogatepass"))


NO_UPDATES: Final = Updates()


def merged(before: Updates, new: Updates) -> Updates:
    """Both, by top-level name; `new` wins. Data come first, then the context (F44)."""
    return Updates(data={**before.data, **new.data}, context={**before.context, **new.context})


def applied(updates: Updates, given: Mapping[str, Any]) -> dict[str, Any]:
    """The context of a turn: `updates`, and over them what its caller has `given` (P18)."""
    extra = {**updates.context, **given}
    told = given.get(DATA, {})
    # Data that the caller gives as something else than an object are its word on all of them.
    if updates.data and isinstance(told, Mapping):
        extra[DATA] = {**updates.data, **told}
    return extra


def free(updates: Updates, given: Mapping[str, Any]) -> Updates:
    """Those of `updates` of which the caller has `given` nothing: the others change nothing."""
    told = given.get(DATA, {})
    data = {name: each for name, each in updates.data.items() if isinstance(told, Mapping) and name not in told}
    return Updates(data=data, context={name: each for name, each in updates.context.items() if name not in given})
