"""Makes keys of calls from a conversation's id and each call's position.

A model's own id of a call is not a key: some models and servers count from 0 in each conversation or answer.
"""

import hashlib
import json
import uuid
from collections import Counter
from typing import Any


def call_key(conversation: str, *place: Any) -> str:
    """The key is always the same for the same position in the same conversation."""
    text = json.dumps([conversation, *place], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class CallKeys:
    """Makes the keys of one conversation, for frameworks that do not give a call's position."""

    def __init__(self, conversation: str | None = None) -> None:
        """Take the conversation's id. Without it, another program cannot find these calls."""
        self._conversation = conversation or uuid.uuid4().hex
        self._times: Counter[str] = Counter()

    def make(self, *place: Any) -> str:
        """Return the key of the next call at this position. Each further call there gets another key."""
        name = call_key(self._conversation, *place)
        self._times[name] += 1
        return call_key(name, self._times[name])
