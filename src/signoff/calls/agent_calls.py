"""The port of external calls: what a plugin may do in the name of the agent whose request it answers."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from starlette.requests import Request

from signoff.calls.peer_turns import Exposed, PeerTurns
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import SignoffError
from signoff.contracts.requests import CallBody, OutcomeBody
from signoff.contracts.responses import CallAnswer

MOVING: Final = ("waiting", "running")
"""States in which nothing is left to the agent but to wait."""
SETTLED: Final = ("denied", "ended")
"""States that are final."""
Watch: TypeAlias = Callable[[CallAnswer], Awaitable[bool]]
"""Sees the call at each look of a wait. It returns whether to go on."""


class AgentIdentity(NamedTuple):
    """In whose name an agent asks."""

    tenant: str
    agent: str
    user: str
    """The id of the person."""


class Judgement(NamedTuple):
    """What the rules say of a call now: `decision`, or why not, and whether people can be asked."""

    decision: bool
    reason: str = ""
    message: str = ""
    is_requestable: bool = False


class AskedQuestion(NamedTuple):
    """What people were asked about a call, and the arguments that they saw or wrote."""

    request: ApprovalRequest
    args: Mapping[str, Any]


class CallUse(NamedTuple):
    """The use of a call's permit."""

    owner: str
    """The id of the try; see `use_id`."""
    claimed_at: datetime
    finished_at: datetime | None
    """When its outcome was reported."""


class CallTerms(NamedTuple):
    """What the tools of a name say of calls that agents run themselves."""

    is_external: bool
    """Whether agents alone run it."""
    asked_seconds: float
    """How long people have to answer."""
    usable_seconds: float
    """How long an approval can be used."""


class ToolListing(NamedTuple):
    """A tool that the agent may see."""

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool
    idempotent: bool
    runs_here: bool
    """Whether Signoff runs it."""


class CallTimes(NamedTuple):
    """When a call began, and when it last changed."""

    begun_at: datetime | None
    changed_at: datetime | None


class Kept(NamedTuple):
    """A value that was kept under a key."""

    value: str
    is_new: bool


class Sealer(Protocol):
    """Seals values that a client carries. The client can read them, and cannot change them."""

    def seal(self, what: str, values: list[Any]) -> str:
        """Return `values` (JSON) as text. A seal of one kind (`what`) is none of another."""
        ...

    def unseal(self, what: str, text: str) -> list[Any] | None:
        """Return the values of a sealed text; None for any other text."""
        ...


class CallHandle(Protocol):
    """One call. It is good for the `AgentCalls` that returned it, and for no other."""

    @property
    def id(self) -> str:
        """The name of the call."""
        ...

    @property
    def agent(self) -> str:
        """The agent whose call it is."""
        ...

    @property
    def user(self) -> str:
        """The person in whose name it was proposed."""
        ...

    @property
    def begun_at(self) -> datetime | None:
        """When it was proposed first."""
        ...

    @property
    def answer(self) -> CallAnswer:
        """The call at the last look. `wait` with 0 seconds looks again."""
        ...

    @property
    def is_new(self) -> bool:
        """Whether this very request began the call."""
        ...

    @property
    def edited_by(self) -> str:
        """Who changed the arguments, of a call that this very request used."""
        ...


class AgentCalls(Protocol):
    """The external calls of the agent that sent a request. The core's sign-in says which agent that is.

    Methods raise `Refused` for what the agent may not do and `Unavailable` while the store or the server is away. A
    handle of another `AgentCalls` is refused.
    """

    @property
    def tenant(self) -> str:
        """The tenant of the agent."""
        ...

    @property
    def was_hurried(self) -> bool:
        """Whether the agent waited for as many calls as one may, so that this request is answered at once."""
        ...

    def has_room(self) -> bool:
        """Return whether the agent may wait for one call more. If not, the answer gets `Retry-After`."""
        ...

    def use_trace(self, given: Mapping[str, object]) -> None:
        """Let the spans of this request follow the `traceparent` of a message."""
        ...

    def agent(self, named: str | None = None) -> str:
        """Return the name of the agent. Raises `Refused` for another agent's."""
        ...

    def tools(self, *, agent: str | None = None, user: str | None = None) -> list[ToolListing]:
        """Return the tools that the agent may see for a person."""
        ...

    async def propose(
        self, body: CallBody, *, key: str | None = None, joins: bool = False, attended: bool = False
    ) -> CallHandle:
        """Propose a call. With `body.use` a permitted call is used at once, with `body.wait` people are waited for.

        The same `key` is the same call. With `joins` a new key names the call that an equal proposal began and that
        was not used. A call that is `attended` runs only while its agent waits for it.
        """
        ...

    async def find(self, place: CallBody, key: str) -> CallHandle | None:
        """Return the call that a key names in `propose` with `joins`. It was not looked at yet."""
        ...

    async def name(self, place: CallBody, key: str, call: CallHandle) -> None:
        """Let a key name a call from now on."""
        ...

    async def unname(self, place: CallBody, key: str, call: CallHandle) -> None:
        """End a key's name for a call."""
        ...

    async def load(self, call_id: str, agent: str | None = None) -> CallHandle:
        """Return a call of the agent by its name. It was not looked at yet.

        In development `agent` says which agent's.
        """
        ...

    async def wait(self, call: CallHandle, seconds: float, watch: Watch | None = None) -> CallHandle:
        """Return a call once it does not move any more, after `seconds` at the latest.

        It ends earlier where the client is gone, the gateway stops or `watch` returns False. An agent that waits for as
        many calls as one may is answered at once, with `Retry-After: 1`.
        """
        ...

    async def use(self, call: CallHandle, key: str | None = None) -> CallHandle:
        """Use the permit of a call, once. The same key gets the same answer again.

        Raises `BadRequest` (409) for a call that cannot be used. Its code says why.
        """
        ...

    async def report(self, call: CallHandle, outcome: OutcomeBody) -> CallHandle:
        """Report what became of a used call. The first report counts; another one is a `Conflict`."""
        ...

    async def withdraw(self, call: CallHandle) -> CallHandle:
        """Withdraw a call that was not used. Raises `BadRequest` (409, `used`)."""
        ...

    async def hand_out(self, call: CallHandle) -> None:
        """Let no equal proposal join a call any more. Do this before you tell the result of a call that was joined."""
        ...

    async def attend(self, call: CallHandle, within: float = 0.0) -> None:
        """Tell a call that its agent waits for it; or, with `within`, for so many seconds no more."""
        ...

    async def run(self, call: CallHandle) -> CallHandle:
        """Let Signoff run a permitted call of a tool that it runs itself."""
        ...

    async def times(self, call: CallHandle) -> CallTimes:
        """Return when a call began and when it changed."""
        ...

    def may_decide(self, question: AskedQuestion, *, agent: str | None = None, user: str | None = None) -> bool:
        """Return whether the person in whose name the agent asks may answer a question."""
        ...

    async def arguments(self, call: CallHandle) -> dict[str, Any]:
        """Return the arguments that were proposed."""
        ...

    async def question(self, call: CallHandle) -> AskedQuestion | None:
        """Return what people were asked; None if nobody was."""
        ...

    async def permit_use(self, call: CallHandle) -> CallUse | None:
        """Return the use of the permit; None if it was not used."""
        ...

    async def keep(self, key: str, value: str) -> Kept:
        """Keep a value for the agent, or return the one that is there. It is deleted as old calls are."""
        ...

    async def kept(self, key: str) -> str | None:
        """Return the value that was kept for the agent under a key."""
        ...

    async def replace(self, key: str, value: str) -> None:
        """Keep a value for the agent in place of any other."""
        ...

    def terms(self, tool: str) -> CallTerms:
        """Return what the tools of a name say."""
        ...

    def asker(self, agent: str | None = None, user: str | None = None) -> AgentIdentity:
        """Return in whose name the agent asks.

        Raises `Refused` for another agent, and for a person for whom it may not act.
        """
        ...

    async def judge(
        self, tool: str, args: dict[str, Any], *, agent: str | None = None, user: str | None = None
    ) -> Judgement:
        """Judge a call by the rules alone. Nobody is asked and nothing is kept."""
        ...

    async def sealer(self, name: str) -> Sealer:
        """Return what seals values under a key of this name, which no part of the core uses."""
        ...

    def now(self) -> datetime:
        """Return the time by the gateway's clock."""
        ...

    def remarks(self, tool: str) -> frozenset[str]:
        """Return the arguments of a tool that are only words about the call."""
        ...

    async def note_refusal(self, error: SignoffError, tool: str = "") -> None:
        """Record a refusal that the plugin answers itself. The core records those that a route raises."""
        ...


class ExternalCalls(Protocol):
    """Makes the `AgentCalls` of requests that the core let in."""

    public_url: str
    """The address of the gateway."""

    def has_agent(self, name: str) -> bool:
        """Return whether the manifest declares an external agent of this name."""
        ...

    @property
    def exposed(self) -> Exposed:
        """What other agents may know of the installation."""
        ...

    def turns_of(self, request: Request) -> PeerTurns:
        """Return the turns of the other agent that sent `request`. Raises `Refused` where no agent was asked for."""
        ...

    def of(self, request: Request) -> AgentCalls:
        """Return the calls of the agent that sent `request`. Raises `Refused` where no agent was asked for."""
        ...
