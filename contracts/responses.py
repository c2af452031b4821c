"""What the gateway's API answers, beside the shapes that turns, requests and records have themselves."""

from typing import Any, Literal

from signoff.contracts.approval import Card
from signoff.contracts.frozen_model import Shape


class Fault(Shape):
    """The body of every answer that is an error."""

    code: str
    """Stable, for programs."""
    message: str
    """One sentence for the reader."""


class TurnLinks(Shape):
    """Where to follow a turn."""

    self: str
    events: str
    page: str
    temporal: str
    """Empty where no address of Temporal's UI is known."""


class TurnStarted(Shape):
    """The answer to a started turn."""

    id: str
    """`<tenant>.<session>.<turn>`."""
    tenant: str
    session: str
    turn: str
    links: TurnLinks


class RestOfResult(Shape):
    """A piece of a result that was cut."""

    call: str
    tool: str
    start: int
    """Where the piece begins, in characters."""
    total: int
    """How many characters are kept."""
    next: int | None
    """Where the next piece begins; null at the end."""
    text: str


class SessionLinks(Shape):
    """Where to follow a session."""

    self: str
    turn: str
    """Empty until it is known which turn answers."""
    page: str


class SessionSaid(Shape):
    """The answer to a message or a late result."""

    id: str
    """`<tenant>.<session>`."""
    tenant: str
    session: str
    turn: str
    """The turn that it is for; empty until that is known."""
    status: Literal["accepted", "refused", "pending"]
    code: str = ""
    message: str = ""
    links: SessionLinks


class EditPreview(Shape):
    """A request as it would be asked with other arguments: nothing is changed by it."""

    args: dict[str, Any]
    """All arguments as they can be sent as `edited_args`: masks stand for secrets that were left as they are."""
    card: Card
    changed: bool
    """Whether they differ from what is asked."""
