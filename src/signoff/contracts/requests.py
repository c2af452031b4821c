"""The request bodies of the gateway.

Closed: an unknown field is refused, identity fields by name. Each edge (API, page, approval link, channel, client)
builds the same `DecisionDraft`, and the gateway converts it by `decision_from_draft`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from signoff.contracts.call import ReportCode
from signoff.contracts.decision import Assigning, Assurance, Decision, GrantRequest, PasskeyAssertion
from signoff.contracts.ids import Id
from signoff.contracts.limits import BATCH_DECISIONS, DELIVERY_CHARS, REASON_CHARS
from signoff.contracts.names import DEFAULT_ASKER, DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.session_messages import MessageId

IDENTITY_FIELDS: Final = frozenset(
    ("tier", "roles", "role", "principal", "person", "name", "locale", "assurance", "subject", "as", "user")
)
"""Fields that no body may contain: identity comes from the directory."""
PROBLEMS_SHOWN: Final = 3
"""Maximum number of problems in the answer to one request."""
REQUEST_ALIASES: Final[Mapping[str, str]] = {"handler": "actor", "event": "turn"}
ANSWER_ALIASES: Final[Mapping[str, str]] = {"turnState": "state", "conversationState": "state", "pass_to": "passTo"}
"""Alternative input names of fields, with Signoff's own names. Output has only the latter."""
_WORD_CHARS: Final = 64
_URL_CHARS: Final = 2_000
_WORKFLOW_CHARS: Final = 255
_HASH_CHARS: Final = 64
_TRANSIENT_TOOLS: Final = 20
_AWAY_TOOLS: Final = 100
MAX_WAIT_SECONDS: Final = 50.0
"""Seconds that one request may wait for approvers: proxies give up at a minute."""
_TRANSIENT: Final = "Names of tools with priority over all others in this turn, within the actor's reach."
_USER: Final = "The requester's id. Tier and roles come from the directory."


def resolve_aliases(given: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """Return `given` with each key of `words` renamed.

    Raises `ValueError` if two keys of one meaning differ: the intended one is unknown.
    """
    ours = {key: value for key, value in given.items() if key not in words}
    for key, value in given.items():
        name = words.get(key)
        if name is None:
            continue
        if name in ours and ours[name] != value:
            raise ValueError(f"`{name}` and `{key}` mean the same and differ; keep one")
        ours[name] = value
    return ours


class RequestBody(BaseModel):
    """A JSON object of known fields only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _in_our_words(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        words = {theirs: ours for theirs, ours in REQUEST_ALIASES.items() if ours in cls.model_fields}
        return cls._with_few_unknown(resolve_aliases(given, words) if words else given)

    @classmethod
    def _with_few_unknown(cls, given: dict[str, Any]) -> dict[str, Any]:
        # Each unknown field would be a separate error: a hundred thousand blocked a gateway for a second. A few are
        # enough to refuse the request, and none of them is ever read.
        unknown = [name for name in given if name not in cls.model_fields]
        spare = {name for name in unknown if name not in IDENTITY_FIELDS}.difference(unknown[:PROBLEMS_SHOWN])
        return {name: value for name, value in given.items() if name not in spare} if spare else given


class DecisionDraft(RequestBody):
    """One person's answer to one request, before the gateway adds the author and signs it."""

    approval_id: str = Field(
        default="",
        max_length=200,
        description="The approval id or short code of the request; needless where the address names it.",
    )
    verdict: Literal["approved", "denied", "answered", "happened"] = Field(
        description="For an unknown outcome: it did not happen and may run, give up, or it happened."
    )
    reason: str = Field(
        default="", max_length=REASON_CHARS, description="The agent reads it when the verdict is denied."
    )
    revision: int | None = Field(default=None, ge=1, description="The shown revision; another is stale.")
    question_hash: str = Field(
        default="",
        max_length=_HASH_CHARS,
        description="The hash of the shown request; another is stale. Only the development profile accepts none.",
    )
    thread: str = Field(
        default="",
        max_length=_HASH_CHARS,
        description="With `approved`, `thread` of the shown request, after questions to its agent; another is stale.",
    )
    edited_args: dict[str, Any] | None = Field(
        default=None, description="All edited arguments, with `approved`. A mask keeps its secret."
    )
    result: str = Field(default="", max_length=REASON_CHARS, description="The outcome, with `happened`.")
    answer: Any = Field(
        default=None, description="With `answered`: JSON by `answer_schema` of the request; the call does not run."
    )
    remember: GrantRequest | None = Field(
        default=None, description="Give the same answer to the next calls like this, where the policy allows it."
    )
    confirm: str = Field(
        default="",
        max_length=REASON_CHARS,
        description="With `approved`, where `confirm` of the request is `type`: the amount on its card, typed again, "
        "else its first value.",
    )
    seen: str = Field(
        default="",
        max_length=_HASH_CHARS,
        description="With `approved`, for an incomplete card: `seen` of the request from its own address.",
    )
    passkey: PasskeyAssertion | None = Field(
        default=None, description="The passkey's answer, where `min_assurance` of the request is `present`."
    )
    delivery_id: str = Field(
        default="",
        max_length=DELIVERY_CHARS,
        pattern=r"^[\x20-\x7e]*$",
        description="The same id again is the same answer; over HTTP also the header `Idempotency-Key`.",
    )

    @field_validator("remember", mode="before")
    @classmethod
    def _known_wishes_only(cls, given: Any) -> Any:
        # History records ignore unknown fields: with an approval, a misspelled one could extend the remembered answer.
        unknown = [name for name in given if name not in GrantRequest.model_fields] if isinstance(given, dict) else []
        if unknown:
            raise ValueError(f"`{str(unknown[0])[:_WORD_CHARS]}` is not known here")
        return given


@dataclass(frozen=True)
class DecisionAuthor:
    """The author of a draft, as verified by the edge and never by a payload."""

    person: Person
    channel: str
    """The medium of the answer: `inbox`, `api`, or a channel's kind."""
    assurance: Assurance
    """Their identification there."""
    received_at: datetime | None = None
    """The time of the answer's arrival, by the store's clock (UTC). `None` for now."""
    by_card: bool = False
    """True if they saw only the card, so that an approval counts only if the card is whole."""
    browser: str = ""
    """The mark of the inbox's browser session, which alone may undo their denial. "" if nothing can be undone."""


_CARRIED: Final = tuple(name for name in DecisionDraft.model_fields if name in Decision.model_fields)
"""The signed fields of a draft. The gateway alone uses the rest."""


def decision_from_draft(draft: DecisionDraft, author: DecisionAuthor, received_at: datetime) -> Decision:
    """Return the unsigned decision of a draft. `received_at` (UTC) counts unless the author has a time.

    Its delivery id includes the author: another person's key must not fetch this person's receipt.
    """
    carried = {name: getattr(draft, name) for name in _CARRIED}
    return Decision(**carried | _verified(draft.delivery_id, author, received_at))


def decision_from_assignment(
    body: "AssignmentBody", approval_id: str, verdict: Assigning, author: DecisionAuthor, received_at: datetime
) -> Decision:
    """As `decision_from_draft`."""
    verified = _verified(f"{verdict}:{body.delivery_id}", author, received_at)
    return Decision(approval_id=approval_id, verdict=verdict, **body.model_dump() | verified)


def _verified(delivery: str, author: DecisionAuthor, received_at: datetime) -> dict[str, Any]:
    return {
        "subject": author.person.id,
        "channel": author.channel,
        "assurance": author.assurance,
        "delivery_id": f"{author.channel}:{author.person.id}:{delivery}",
        "received_at": author.received_at or received_at,
    }


class BatchBody(RequestBody):
    """Answer several requests independently: a refused answer does not affect the others.

    Each is a `DecisionDraft` that names its request, revision and question hash. An incomplete
    card needs a separate approval.
    """

    decisions: list[Any] = Field(
        min_length=1,
        max_length=BATCH_DECISIONS,
        json_schema_extra={"items": {"$ref": "#/components/schemas/DecisionDraft"}},
    )


class AssignmentBody(RequestBody):
    """Hand one waiting request on to another approver, or require their approval besides."""

    to: Id = Field(description="The id of a person who may decide the request.")
    reason: str = Field(default="", max_length=REASON_CHARS, description="Stored with the request.")
    revision: int | None = Field(default=None, ge=1, description="The shown revision; another is stale.")
    question_hash: str = Field(
        default="",
        max_length=_HASH_CHARS,
        description="The hash of the shown request; another is stale. Only the development profile accepts none.",
    )
    delivery_id: str = Field(
        default="",
        max_length=DELIVERY_CHARS,
        pattern=r"^[\x20-\x7e]*$",
        description="The same id again changes nothing.",
    )


class AbsenceBody(RequestBody):
    """Say that you are away."""

    since: datetime | None = Field(default=None, description="The beginning, with its zone. Now by default.")
    until: datetime = Field(description="The return, with its zone.")
    tools: tuple[str, ...] = Field(default=(), max_length=_AWAY_TOOLS, description="Only for these tools.")
    to: str = Field(default="", max_length=_WORD_CHARS, description="A person to ask instead.")


class WithdrawBody(RequestBody):
    """Withdraw one waiting request."""

    reason: str = Field(default="", max_length=REASON_CHARS, description="Stored with the request. The agent reads it.")


class QuestionBody(RequestBody):
    """Ask the agent about its waiting request."""

    text: str = Field(min_length=1, max_length=REASON_CHARS, description="The question. The agent's model reads it.")


class FreezeBody(RequestBody):
    """Deny everything in a tenant until the freeze ends."""

    tenant: Id | None = Field(default=None, description="The caller's own when not given.")
    reason: str = Field(min_length=1, max_length=REASON_CHARS, description="The agents and the approvers read it.")


class ApprovalResponseBody(DecisionDraft):
    """An `approval-response` part of a message: an answer that names its request, revision and question hash."""

    type: Literal["approval-response"] = Field(description="The type of the part.")


class MessageBody(RequestBody):
    """One earlier or new message of a conversation, as plain text."""

    role: Literal["user", "assistant"] = "user"
    text: str = Field(min_length=1)


class TurnBody(RequestBody):
    """Start a turn: `text`, or `messages` that end with the person's."""

    text: str | None = Field(default=None, description="The person's text. Give this or `messages`.")
    messages: list[MessageBody] = Field(default=[], max_length=1_000)
    actor: str | None = Field(default=None, description="The addressed actor. Optional with a single actor.")
    user: str = Field(default=DEFAULT_ASKER, description=_USER)
    session: Id | None = Field(default=None, description="The conversation. A new one by default.")
    turn: Id | None = Field(default=None, description="The turn's id, for safe retries; a UUIDv7 when not given.")
    tenant: Id = DEFAULT_TENANT
    route: str = Field(default="", max_length=_WORD_CHARS, description="The actor's route to begin on.")
    step: str = Field(default="", max_length=_WORD_CHARS, description="The step of the route.")
    transient: tuple[Annotated[str, Field(max_length=_WORD_CHARS)], ...] = Field(
        default=(), max_length=_TRANSIENT_TOOLS, description=_TRANSIENT
    )
    dry_run: bool = Field(default=False, description="Judge every call, run none.")
    trace: bool = Field(default=False, description="Record the meaning of each call's tool name, with the reason.")
    context: dict[str, Any] = Field(default={}, description="Extra context fields that the manifest declares.")

    @model_validator(mode="after")
    def _one_of_both(self) -> "TurnBody":
        if (self.text is None) == (not self.messages):
            raise ValueError("give either `text` or `messages`")
        if self.text is not None:
            _check_words(self.text)
        if self.messages and self.messages[-1].role != "user":
            raise ValueError("the last of `messages` must be the user's")
        return self

    @property
    def all_messages(self) -> tuple[MessageBody, ...]:
        """The conversation so far, newest last."""
        return tuple(self.messages) if self.text is None else (MessageBody(text=self.text),)


class SayBody(RequestBody):
    """Send a message to a session: `text`, or `parts` that answer its turns' requests."""

    text: str = Field(default="", description="The person's text. Give this or `parts`.")
    parts: list[Any] = Field(
        default=[],
        max_length=BATCH_DECISIONS,
        json_schema_extra={"items": {"$ref": "#/components/schemas/ApprovalResponseBody"}},
        description="Answers to requests of this session by their approvers, only with `user` and `id`.",
    )
    actor: str | None = Field(default=None, description="The addressed actor. The session's present one by default.")
    user: str = Field(default=DEFAULT_ASKER, description=_USER)
    id: MessageId | None = Field(default=None, description="The message's id, for safe retries; a UUIDv7 if not given.")
    route: str = Field(default="", max_length=_WORD_CHARS, description="The actor's route to begin on.")
    step: str = Field(default="", max_length=_WORD_CHARS, description="The step of the route.")
    transient: tuple[Annotated[str, Field(max_length=_WORD_CHARS)], ...] = Field(
        default=(), max_length=_TRANSIENT_TOOLS, description=_TRANSIENT
    )
    dry_run: bool = Field(default=False, description="Judge every call, run none.")
    trace: bool = Field(default=False, description="Record the meaning of each call's tool name, with the reason.")
    context: dict[str, Any] = Field(default={}, description="Extra context fields that the manifest declares.")

    @model_validator(mode="after")
    def _one_of_both(self) -> "SayBody":
        if not self.parts:
            _check_words(self.text)
            return self
        # The order of a message and an answer in one request would be unclear.
        beside = sorted(self.model_fields_set - {"parts", "user", "id"})
        if beside:
            raise ValueError(f"`parts` go without {', '.join(f'`{name}`' for name in beside)}; say that in another one")
        return self


class ResultBody(RequestBody):
    """A late result for one turn of a session."""

    turn: Id = Field(description="The turn that waits for it, or that ended `awaiting` or `delegated`.")
    text: str = Field(min_length=1, description="The text for its actor.")
    id: Id | None = Field(default=None, description="The result's id, for safe retries; a UUIDv7 if not given.")

    @field_validator("text")
    @classmethod
    def _says_something(cls, words: str) -> str:
        return _check_words(words)


class WorkflowBody(RequestBody):
    """A workflow of the namespace."""

    id: str = Field(min_length=1, max_length=_WORKFLOW_CHARS, description="Its id.")
    run_id: str = Field(default="", max_length=_WORD_CHARS, description="Its run; the latest when not given.")
    signal: str = Field(min_length=1, max_length=_WORD_CHARS, description="The signal that it is sent.")


class CallbackBody(RequestBody):
    """The target for the notice of a settled call."""

    url: str = Field(default="", max_length=_URL_CHARS, description="An address that the agent's declaration allows.")
    state: str = Field(default="", max_length=REASON_CHARS, description="Comes back with it.")
    workflow: WorkflowBody | None = Field(default=None, description="In place of an address.")

    @model_validator(mode="after")
    def _tells_one(self) -> "CallbackBody":
        if bool(self.url) == (self.workflow is not None):
            raise ValueError("`callback` has a `url` or a `workflow`, and not both")
        return self


# Not shorter: "true" and "yes" would be the same id for every call.
UseId = Annotated[str, Field(min_length=8, max_length=200)]
"""An id of one use request."""


class CallBody(RequestBody):
    """Propose one call of an external agent."""

    tool: str = Field(
        min_length=1, max_length=_WORD_CHARS, description="The tool, by its name in the gateway's manifest."
    )
    args: dict[str, Any] = Field(default={}, description="Its arguments.")
    agent: str | None = Field(
        default=None, max_length=_WORD_CHARS, description="The proposing agent. By default the token's."
    )
    user: str | None = Field(
        default=None,
        description="The requester's id. The agent must be permitted to act for them. Optional with a single one.",
    )
    session: Id | None = Field(default=None, description="The conversation. A new one by default.")
    tenant: Id | None = Field(default=None, description="The token's own when not given.")
    says: str = Field(
        default="", max_length=REASON_CHARS, description="The agent's text, marked as such for approvers."
    )
    wait: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the approvers.")
    use: bool | UseId = Field(
        default=False,
        description="Use the permit at once: you run the call the moment you read the yes. In place of `true` an id of "
        "this try, so that it can be sent again: the same id is handed the same permit.",
    )
    callback: CallbackBody | None = Field(
        default=None, description="The target for the notice of the settled call, unless it is settled at once."
    )
    timeout: str | float = Field(
        default="", description="Time to report a used call, as `30s` or `8h`. By default the tool's own."
    )
    ask_within: str | float = Field(
        default="", description="Time for approvers to answer, as `10m`, if shorter than the policy's own."
    )


class OutcomeBody(RequestBody):
    """Report the outcome of a used call."""

    code: ReportCode = Field(description="Whether it succeeded, failed, or may have happened.")
    result: Any = Field(default="", description="The result, any JSON of at most 64 KiB. Stored with the call.")


class CancelBody(RequestBody):
    """Stop a turn. No fields are needed."""


def _check_words(words: str) -> str:
    if not words.strip():
        raise ValueError("`text` is empty; say something")
    try:
        # JSON may contain half of a surrogate pair (`"\\ud800"`), which no record or receipt can hold.
        words.encode()
    except UnicodeEncodeError:
        raise ValueError("`text` holds text that is not Unicode (a lone surrogate)") from None
    return words


def sentence(errors: Sequence[Any], person: str = "name the person by `user`") -> str:
    """Return one sentence about a request's invalid body or parameters, naming the fields.

    `person` explains how the request names its person. Never reads the value of an error.
    """
    found = [(".".join(str(part) for part in each["loc"] if part != "body"), each) for each in errors]
    identity = [name for name, each in found if each["type"] == "extra_forbidden" and name in IDENTITY_FIELDS]
    if identity:
        named = ", ".join(f"`{name}`" for name in identity)
        return f"{named} cannot be given: {person}, and everything else comes from the directory"
    problems = [_problem(name, each) for name, each in found[:PROBLEMS_SHOWN]]
    return "; ".join(problems) or "the request cannot be read"


def _problem(name: str, error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return f"`{name}` is not known here"
    if error["type"] == "missing":
        return f"`{name}` is missing" if name else "the body is missing; send a JSON object"
    if error["type"] == "json_invalid":
        return "the body is not JSON"
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        # pydantic would name its own classes.
        return f"`{name}` must be a JSON object" if name else "this must be a JSON object"
    text = str(error["msg"]).removeprefix("Value error, ")
    text = text[:1].lower() + text[1:]
    return f"`{name}`: {text}" if name else text
