"""The port of turns: what a plugin may do in the name of another agent that sent a request."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from starlette.responses import Response

from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.list_rows import TurnRow
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import ResponsePart, TurnView

V = TypeVar("V")


class ExposedTool(NamedTuple):
    """A tool that other agents may call."""

    name: str
    title: str
    description: str
    tags: tuple[str, ...]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    approval: Literal["never", "maybe", "always"]


class ExposedActor(NamedTuple):
    """An actor with tools that other agents may call."""

    name: str
    description: str
    tools: tuple[ExposedTool, ...]


class Exposed(NamedTuple):
    """What other agents may know of an installation."""

    actors: tuple[ExposedActor, ...]
    tools: frozenset[str]
    """The names of all tools that are exposed by any actor."""
    version: str
    part_types: tuple[str, ...]
    withheld: frozenset[str]
    """Types of parts that only an agent gets that names them."""


class TurnStart(NamedTuple):
    """Who began a turn, by which channel, with which actor."""

    requester: str
    channel: str
    actor: str


class PeerTurns(Protocol):
    """The sessions and turns of the agent that sent a request. The core's sign-in says who that is.

    Methods raise `NotFound`, `Refused` and `Unavailable`.
    """

    @property
    def tenant(self) -> str:
        """The tenant of the agent."""
        ...

    @property
    def user(self) -> str:
        """The id of the agent's person."""
        ...

    def new_session(self, seed: str) -> SessionKey:
        """Return the session of a new conversation. `seed` is of hexadecimal digits."""
        ...

    def is_session(self, key: SessionKey) -> bool:
        """Return whether a session is one of this agent's."""
        ...

    async def say(self, key: TurnKey, actor: str, text: str) -> None:
        """Say something to an actor, which begins the turn `key`. Raises `Conflict` for other words under its id."""
        ...

    async def start(self, key: TurnKey) -> TurnStart | None:
        """Return how a turn began; None where it is no turn. Raises `NotFound` before it has begun."""
        ...

    async def view(self, key: TurnKey) -> TurnView:
        """Return a turn as it may be shown."""
        ...

    async def row(self, key: TurnKey) -> TurnRow | None:
        """Return the row of a turn in lists."""
        ...

    async def session(self, key: SessionKey) -> SessionView:
        """Return a session as it is now."""
        ...

    async def value(self, part: ResponsePart, place: SessionKey) -> Any:
        """Return the value of a part of an answer."""
        ...

    async def stop(self, key: TurnKey) -> None:
        """Stop a turn."""
        ...

    async def rows(self, actor: str, wanted: Callable[[TurnRow], bool], limit: int) -> list[TurnRow]:
        """Return the agent's newest turns with an actor."""
        ...

    async def share(self, what: tuple[Hashable, ...], read: Callable[[], Awaitable[V]]) -> V:
        """Return what `read` returns, or what it returned to an equal request at the same time."""
        ...

    async def pause(self, seconds: float) -> bool:
        """Wait. Return False at once where the gateway stops."""
        ...

    def waiting(self, seconds: float, about: str) -> AbstractAsyncContextManager[float]:
        """Count a request that waits, and yield the seconds for which it may.

        They are 0 for an agent that waits for as much as one may; the answer gets `Retry-After` then.
        """
        ...

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Count a request whose answer is long in coming. Raises `BadRequest` (429)."""
        ...

    def refuse_more(self) -> None:
        """Raise `BadRequest` (429) for an agent that follows as much as one may."""
        ...

    def stream(self, events: AsyncGenerator[str, None]) -> Response:
        """Answer with server-sent events for as long as the agent is let in."""
        ...
