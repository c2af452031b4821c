"""Changes that tools make to a conversation's data and context, and how they combine with what callers give. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel

DATA: Final = "data"
"""Where in the context collected data lies."""
UPDATE: Final = "update"
"""The gate of a call that ran and whose update is not taken."""
UPDATE_FAILED: Final = (
    "update_invalid: `{}` ran and took effect, but {}, so nothing of what it would have changed of the "
    "conversation was taken. Do not call it again for that; tell the user."
)
"""What the model is told of such a call (F44); the second place says why."""
UPDATE_LOST: Final = "Nothing of what `{}` would have changed of the conversation was taken: {}."
"""What the model is told of a call that failed by itself, before its words."""


class Updates(FrozenModel):
    """Changes by top-level name."""

    data: dict[str, Any] = Field(default_factory=dict)
    """Fields of collected data."""
    context: dict[str, Any] = Field(default_factory=dict)
    """Declared fields of the context."""

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the changed names, as `data.<name>` and `<name>`."""
        return (*(f"{DATA}.{name}" for name in self.data), *self.context)

    @property
    def size(self) -> int:
        """Returns the bytes of the changes as JSON."""
        text = json.dumps([self.data, self.context], ensure_ascii=False, separators=(",", ":"))
        # A history may hold half a surrogate pair; measuring must not fail a workflow task.
        return len(text.encode("utf-8", "surrogatepass"))


NO_UPDATES: Final = Updates()


def merge_updates(before: Updates, new: Updates) -> Updates:
    """Combines two updates by top-level name; `new` wins. Data come first, then the context (F44)."""
    return Updates(data={**before.data, **new.data}, context={**before.context, **new.context})


def apply_updates(updates: Updates, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the context of a turn: `updates`, overridden by what its caller has `given` (P18)."""
    extra = {**updates.context, **given}
    data = given.get(DATA, {})
    # Data that the caller gives as something else than an object are its word on all of them.
    if updates.data and isinstance(data, Mapping):
        extra[DATA] = {**updates.data, **data}
    return extra


def free_updates(updates: Updates, given: Mapping[str, Any]) -> Updates:
    """Returns those of `updates` for which the caller has `given` nothing: the others change nothing."""
    given_data = given.get(DATA, {})
    data = {
        name: each for name, each in updates.data.items() if isinstance(given_data, Mapping) and name not in given_data
    }
    return Updates(data=data, context={name: each for name, each in updates.context.items() if name not in given})
