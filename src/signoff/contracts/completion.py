"""One exchange with a model, as a driver sees it: everything inline, nothing of Temporal."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from signoff.contracts.activity_messages import ModelTool
from signoff.contracts.message import Message
from signoff.contracts.turn import TokenUsage


@dataclass(frozen=True)
class CompletionRequest:
    """What a driver is asked. All contents are inline."""

    model: str
    """The model, `provider:name`."""
    instructions: str
    """The actor's instructions."""
    messages: tuple[Message, ...]
    """The conversation so far."""
    provider: tuple[bytes | None, ...]
    """For each message, what the driver returned as `Completion.provider` for it, or None."""
    tools: tuple[ModelTool, ...]
    """The tools that the model may call."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The actor's settings for the model."""


@dataclass(frozen=True)
class ProposedCall:
    """A call as the model wrote it."""

    tool: str
    """The tool's name."""
    args: Any
    """The parsed object, or the raw text when it does not parse."""
    provider_call: str = ""
    """The provider's id of the call."""
    cut: bool = False
    """Whether the provider cut the answer at its length, perhaps within these arguments."""


@dataclass(frozen=True)
class Completion:
    """The model's answer."""

    text: str = ""
    """Its words."""
    calls: tuple[ProposedCall, ...] = ()
    """The calls that it proposes."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    """The tokens that it took."""
    provider: bytes | None = None
    """The library's own serialised response, opaque to Signoff."""
    cut: bool = False
    """Whether the provider cut the answer at its length."""


class Driver(Protocol):
    """Asks a model for completions. Raises `ModelUnavailable` (asked again for ten minutes) or `ModelRefused` (final).

    An `OSError` or a timeout counts as the first, every other exception as the second.
    """

    async def complete(self, request: CompletionRequest) -> Completion:
        """Asks the model once."""
        ...
