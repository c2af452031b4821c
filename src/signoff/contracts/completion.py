"""One exchange with a model, as a driver sees it: all content inline, without Temporal."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from signoff.contracts.activity_messages import ModelTool
from signoff.contracts.message import Message
from signoff.contracts.turn import TokenUsage


@dataclass(frozen=True)
class CompletionRequest:
    """All contents are inline."""

    model: str
    """The model, `provider:name`."""
    instructions: str
    messages: tuple[Message, ...]
    provider: tuple[bytes | None, ...]
    """For each message, the driver's earlier `Completion.provider`, or `None`."""
    tools: tuple[ModelTool, ...]
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ProposedCall:
    """A call as the model wrote it."""

    tool: str
    args: Any
    """The parsed object, or the raw text of invalid JSON."""
    provider_call: str = ""
    cut: bool = False
    """True if the provider truncated the answer, possibly within these arguments."""


@dataclass(frozen=True)
class Completion:
    """The model's answer."""

    text: str = ""
    calls: tuple[ProposedCall, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    provider: bytes | None = None
    """The library's own serialised response, opaque to Signoff."""
    cut: bool = False
    """True if the provider truncated the answer."""


class Driver(Protocol):
    """Requests completions from a model.

    Raises `ModelUnavailable` (retried for ten minutes) or `ModelRefused` (final). An `OSError` or a timeout counts as
    the first, every other exception as the second.
    """

    async def complete(self, request: CompletionRequest) -> Completion: ...
