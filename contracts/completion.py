"""One exchange with a model, as a driver sees it: everything inline, nothing of Temporal."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from signoff.contracts.activity_messages import Offered
from signoff.contracts.message import Message
from signoff.contracts.turn import Usage


@dataclass(frozen=True)
class CompletionRequest:
    """What a driver is asked. All contents are inline.

    `provider` holds, for each message, what the driver returned as `Completion.provider` for it, or None.
    """

    model: str
    instructions: str
    messages: tuple[Message, ...]
    provider: tuple[bytes | None, ...]
    tools: tuple[Offered, ...]
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ProposedCall:
    """A call as the model wrote it; `args` is the parsed object or the raw text when it does not parse."""

    tool: str
    args: Any
    provider_call: str = ""


@dataclass(frozen=True)
class Completion:
    """What the model answered. `provider` is the library's own serialised response, opaque to us."""

    text: str = ""
    calls: tuple[ProposedCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    provider: bytes | None = None


class Driver(Protocol):
    """Something that completes. Raises `ModelUnavailable` (retried) or `ModelRefused` (final)."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask the model once."""
        ...
