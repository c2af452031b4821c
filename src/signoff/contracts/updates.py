"""Tools' changes to a conversation's data and context, and their merge with callers' values. No I/O."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from signoff.contracts.frozen_model import FrozenModel

DATA: Final = "data"
"""The context field of collected data."""
UPDATE: Final = "update"
"""The gate of a call that ran, but whose update is rejected."""
UPDATE_FAILED: Final = (
    "update_invalid: `{}` ran and took effect, but {}, so none of its changes to the "
    "conversation were applied. Do not call it again for that; tell the user."
)
"""The message to the model about such a call. The second placeholder is the reason."""
UPDATE_LOST: Final = "None of the changes of `{}` to the conversation were applied: {}."
"""The message to the model about a call that failed, before its own text."""


class Updates(FrozenModel):
    """Changes by top-level name."""

    data: dict[str, Any] = Field(default_factory=dict)
    """Fields of collected data."""
    context: dict[str, Any] = Field(default_factory=dict)
    """Declared fields of the context."""

    @property
    def names(self) -> tuple[str, ...]:
        """The changed names, as `data.<name>` and `<name>`."""
        return (*(f"{DATA}.{name}" for name in self.data), *self.context)

    @property
    def size(self) -> int:
        """The bytes of the changes as JSON."""
        text = json.dumps([self.data, self.context], ensure_ascii=False, separators=(",", ":"))
        # A history may hold half a surrogate pair; measuring must not fail a workflow task.
        return len(text.encode("utf-8", "surrogatepass"))


NO_UPDATES: Final = Updates()


def merge_updates(before: Updates, new: Updates) -> Updates:
    """Merge two updates by top-level name. `new` wins."""
    return Updates(data={**before.data, **new.data}, context={**before.context, **new.context})


def apply_updates(updates: Updates, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` by the caller overrides `updates`."""
    extra = {**updates.context, **given}
    data = given.get(DATA, {})
    # Data of another type than an object replace all collected data.
    if updates.data and isinstance(data, Mapping):
        extra[DATA] = {**updates.data, **data}
    return extra


def free_updates(updates: Updates, given: Mapping[str, Any]) -> Updates:
    """Return the `updates` that the caller's `given` does not override: the others change nothing."""
    given_data = given.get(DATA, {})
    data = {
        name: each for name, each in updates.data.items() if isinstance(given_data, Mapping) and name not in given_data
    }
    return Updates(data=data, context={name: each for name, each in updates.context.items() if name not in given})
