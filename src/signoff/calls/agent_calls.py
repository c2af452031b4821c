"""The port of external calls: a plugin's actions in the name of the agent whose request it answers."""

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
"""States in which the agent can only wait."""
SETTLED: Final = ("denied", "ended")
"""States that are final."""
Watch: TypeAlias = Callable[[CallAnswer], Awaitable[bool]]
"""Receives the call at each poll of a wait. Returns whether to continue."""


class AgentIdentity(NamedTuple):
    """The identity of an agent's request."""

    tenant: str
    agent: str
    user: str


class Judgement(NamedTuple):
    """The rules' present judgement of a call: `decision`, or the reason against it."""

    decision: bool
    reason: str = ""
    message: str = ""
    is_requestable: bool = False


class AskedQuestion(NamedTuple):
    """The question about a call, with its present arguments."""

    request: ApprovalRequest
    args: Mapping[str, Any]


class CallUse(NamedTuple):
    """The use of a call's permit."""

    owner: str
    """The id of the use request, see `use_id`."""
    claimed_at: datetime
    finished_at: datetime | None
    """The time of the report of the outcome. `None` without a report."""


class CallTerms(NamedTuple):
    """The declared limits of a tool name's external calls."""

    is_external: bool
    """True if only agents run the tool."""
    asked_seconds: float
    """The time that approvers have for an answer."""
    usable_seconds: float
    """The lifetime of an approval."""


class ToolListing(NamedTuple):
    """A tool that the agent may see."""

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool
    idempotent: bool
    runs_here: bool
    """True if Signoff runs the tool."""


class CallTimes(NamedTuple):
    """When a call began, and when it last changed."""

    begun_at: datetime | None
    changed_at: datetime | None


class Kept(NamedTuple):
    """A value stored under a key."""

    value: str
    is_new: bool


class Sealer(Protocol):
    """Seals values for a client, which can read but not change them."""

    def seal(self, what: str, values: list[Any]) -> str:
        """A seal of one kind (`what`) is invalid for another. `values` are JSON."""
        ...

    def unseal(self, what: str, text: str) -> list[Any] | None:
        """Return `None` for text that is not a seal of this kind."""
        ...


class CallHandle(Protocol):
    """One call. It is valid only for the `AgentCalls` that returned it."""

    @property
    def id(self) -> str: ...

    @property
    def agent(self) -> str: ...

    @property
    def user(self) -> str:
        """The agent proposed the call in this person's name."""
        ...

    @property
    def begun_at(self) -> datetime | None: ...

    @property
    def answer(self) -> CallAnswer:
        """The call at the last poll. `wait` with 0 seconds polls again."""
        ...

    @property
    def is_new(self) -> bool:
        """True if this request began the call."""
        ...

    @property
    def edited_by(self) -> str:
        """The editor of the arguments, for a call used by this request."""
        ...


class AgentCalls(Protocol):
    """The external calls of the agent that sent a request, identified by the core's sign-in.

    Methods raise `Refused` for forbidden actions, and `Unavailable` while the store or the server is unavailable. A
    handle of another `AgentCalls` is refused.
    """

    @property
    def tenant(self) -> str: ...

    @property
    def was_hurried(self) -> bool:
        """True if the agent reached its limit of parallel waits, so that this request is answered at once."""
        ...

    def has_room(self) -> bool:
        """Return whether the agent may wait for another call. If not, the answer gets `Retry-After`."""
        ...

    def use_trace(self, given: Mapping[str, object]) -> None:
        """Make the spans of this request follow the `traceparent` of a message."""
        ...

    def agent(self, named: str | None = None) -> str:
        """Raise `Refused` for another agent's name."""
        ...

    def tools(self, *, agent: str | None = None, user: str | None = None) -> list[ToolListing]:
        """Return only the tools that the agent may see for the person."""
        ...

    async def propose(
        self, body: CallBody, *, key: str | None = None, joins: bool = False, attended: bool = False
    ) -> CallHandle:
        """Propose a call. `body.use` uses a permitted call at once, `body.wait` waits for the approvers.

        Equal keys name the same call. With `joins`, a new key names the unused call of an equal proposal. An `attended`
        call runs only while its agent waits for it.
        """
        ...

    async def find(self, place: CallBody, key: str) -> CallHandle | None:
        """Return the call that a key names in `propose` with `joins`, without polling it."""
        ...

    async def name(self, place: CallBody, key: str, call: CallHandle) -> None:
        """Let a key name a call from now on."""
        ...

    async def unname(self, place: CallBody, key: str, call: CallHandle) -> None:
        """End a key's name for a call, so that the key can name another call."""
        ...

    async def load(self, call_id: str, agent: str | None = None) -> CallHandle:
        """Return a call of the agent by its name, without polling it.

        In development, `agent` names the agent.
        """
        ...

    async def wait(self, call: CallHandle, seconds: float, watch: Watch | None = None) -> CallHandle:
        """Return a call once its state is stable, after `seconds` at the latest.

        It ends earlier if the client leaves, the gateway stops or `watch` returns False. An agent at its limit of
        parallel waits is answered at once, with `Retry-After: 1`.
        """
        ...

    async def use(self, call: CallHandle, key: str | None = None) -> CallHandle:
        """Use the permit of a call, once. The same key gets the same answer again.

        Raises `BadRequest` (409) for a call that cannot be used. Its code is the reason.
        """
        ...

    async def report(self, call: CallHandle, outcome: OutcomeBody) -> CallHandle:
        """The first report counts; another one is a `Conflict`."""
        ...

    async def withdraw(self, call: CallHandle) -> CallHandle:
        """Raise `BadRequest` (409, `used`) for a used call."""
        ...

    async def hand_out(self, call: CallHandle) -> None:
        """Prevent equal proposals from joining a call, before you return the result of a joined call."""
        ...

    async def attend(self, call: CallHandle, within: float = 0.0) -> None:
        """Report that the call's agent waits, or with `within`, that it stops waiting for so many seconds."""
        ...

    async def run(self, call: CallHandle) -> CallHandle:
        """Run a permitted call of a tool that Signoff runs itself."""
        ...

    async def times(self, call: CallHandle) -> CallTimes: ...

    def may_decide(self, question: AskedQuestion, *, agent: str | None = None, user: str | None = None) -> bool: ...

    async def arguments(self, call: CallHandle) -> dict[str, Any]:
        """Return the arguments as proposed, even if an approver changed them."""
        ...

    async def question(self, call: CallHandle) -> AskedQuestion | None: ...

    async def permit_use(self, call: CallHandle) -> CallUse | None: ...

    async def keep(self, key: str, value: str) -> Kept:
        """Store a value for the agent, or return the key's present value. It is deleted along with old calls."""
        ...

    async def kept(self, key: str) -> str | None: ...

    async def replace(self, key: str, value: str) -> None: ...

    def terms(self, tool: str) -> CallTerms: ...

    def asker(self, agent: str | None = None, user: str | None = None) -> AgentIdentity:
        """Raise `Refused` for another agent, and for a person that it may not represent."""
        ...

    async def judge(
        self, tool: str, args: dict[str, Any], *, agent: str | None = None, user: str | None = None
    ) -> Judgement:
        """Judge a call by the rules alone, without asking approvers or storing anything."""
        ...

    async def sealer(self, name: str) -> Sealer:
        """Return a sealer with a key of this name, which no part of the core uses."""
        ...

    def now(self) -> datetime: ...

    def remarks(self, tool: str) -> frozenset[str]:
        """Return the arguments that are only remarks about the call."""
        ...

    async def note_refusal(self, error: SignoffError, tool: str = "") -> None:
        """Record a refusal that the plugin answers itself. The core records refusals by a route."""
        ...


class ExternalCalls(Protocol):
    """Creates the `AgentCalls` of requests that the core admitted."""

    public_url: str

    def has_agent(self, name: str) -> bool: ...

    @property
    def exposed(self) -> Exposed: ...

    def turns_of(self, request: Request) -> PeerTurns:
        """Raise `Refused` if the route needs no agent."""
        ...

    def of(self, request: Request) -> AgentCalls:
        """Raise `Refused` if the route needs no agent."""
        ...
