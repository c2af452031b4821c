"""The port of turns: a plugin's actions in the name of another agent that sent a request."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from starlette.responses import Response

from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.responses import TurnRow
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import ResponsePart, TurnView

V = TypeVar("V")
Pause: TypeAlias = Callable[[float], Awaitable[bool]]
"""Waits for so many seconds at most. Returns whether to continue."""


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
    """An actor with tools for other agents."""

    name: str
    description: str
    tools: tuple[ExposedTool, ...]


class Exposed(NamedTuple):
    """The data of an installation for other agents."""

    actors: tuple[ExposedActor, ...]
    tools: frozenset[str]
    """The names of all tools that any actor exposes."""
    version: str
    part_types: tuple[str, ...]
    withheld: frozenset[str]
    """Types of parts that an agent gets only if it names them."""


class TurnStart(NamedTuple):
    """A turn's requester, channel and actor."""

    requester: str
    channel: str
    actor: str


class PeerTurns(Protocol):
    """The sessions and turns of the agent that sent a request, identified by the core's sign-in.

    Methods raise `NotFound`, `Refused` and `Unavailable`.
    """

    @property
    def tenant(self) -> str: ...

    @property
    def user(self) -> str: ...

    def new_session(self, seed: str) -> SessionKey:
        """`seed` has hexadecimal digits."""
        ...

    def is_session(self, key: SessionKey) -> bool:
        """Return whether a session belongs to this agent."""
        ...

    async def say(self, key: TurnKey, actor: str, text: str) -> None:
        """Send a message to an actor, which begins the turn `key`.

        Raises `Conflict` for another message with that id.
        """
        ...

    async def start(self, key: TurnKey) -> TurnStart | None:
        """Return a turn's start, or `None` if it is not a turn. Raises `NotFound` before it has begun."""
        ...

    async def view(self, key: TurnKey) -> TurnView: ...

    async def row(self, key: TurnKey) -> TurnRow | None: ...

    async def session(self, key: SessionKey) -> SessionView: ...

    async def value(self, part: ResponsePart, place: SessionKey) -> Any: ...

    async def stop(self, key: TurnKey) -> None: ...

    async def rows(self, actor: str, wanted: Callable[[TurnRow], bool], limit: int) -> list[TurnRow]:
        """Return the newest of the agent's own turns with the actor, at most `limit`."""
        ...

    async def share(self, what: tuple[Hashable, ...], read: Callable[[], Awaitable[V]]) -> V:
        """Share one `read` among equal requests at the same time."""
        ...

    def following(self, turns: Sequence[TurnKey]) -> AbstractAsyncContextManager[Pause]:
        """Yield a function that waits until the store's rows of these turns change.

        It returns after some seconds at the latest, and False at once if the gateway stops.
        """
        ...

    def waiting(self, seconds: float, about: str) -> AbstractAsyncContextManager[float]:
        """Count a waiting request, and yield its permitted seconds.

        An agent at its limit gets 0 seconds, and `Retry-After`.
        """
        ...

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Count a request with a long response. Raises `BadRequest` (429) for an agent at its limit."""
        ...

    def refuse_more(self) -> None:
        """Raise `BadRequest` (429) for an agent at its limit of followed turns."""
        ...

    def stream(self, events: AsyncGenerator[str, None]) -> Response:
        """Answer with server-sent events as long as the agent is admitted."""
        ...
