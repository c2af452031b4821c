"""What requests may say. Closed: an unknown field is refused, identity fields by name."""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from signoff.contracts.ids import Id
from signoff.contracts.input_aliases import REQUEST_WORDS, in_our_words
from signoff.contracts.limits import BATCH_DECISIONS, MAX_REMEMBERED_SECONDS, MAX_REMEMBERED_USES, REASON_CHARS
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.session_messages import MessageId
from signoff.formats.bounds import out_of_bounds
from signoff.gateway.auth.person_lookup import DEFAULT_ASKER
from signoff.gateway.errors import IDENTITY_FIELDS, PROBLEMS_TOLD

_CONFIRM: Final = "A value of the card, typed again, to approve what wants that: its `confirm` is `type`."


class Body(BaseModel):
    """A JSON object of known fields only."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _in_our_words(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        words = {theirs: ours for theirs, ours in REQUEST_WORDS.items() if ours in cls.model_fields}
        return cls._with_few_unknown(in_our_words(given, words) if words else given)

    @classmethod
    def _with_few_unknown(cls, given: dict[str, Any]) -> dict[str, Any]:
        # Each unknown field is an error of its own: a hundred thousand of them kept a gateway from everything else
        # for a second. A few are enough to refuse by, and none of them is ever read.
        known = {*cls.model_fields, *(field.alias for field in cls.model_fields.values())}
        unknown = [name for name in given if name not in known]
        spare = {name for name in unknown if name not in IDENTITY_FIELDS}.difference(unknown[:PROBLEMS_TOLD])
        return {name: value for name, value in given.items() if name not in spare} if spare else given


def _said(words: str) -> str:
    if not words.strip():
        raise ValueError("`text` is empty; say something")
    if why := out_of_bounds(words):
        raise ValueError(f"`text` holds {why}")
    return words


class MessageBody(Body):
    """One earlier or new message of a conversation, as plain text."""

    role: Literal["user", "assistant"] = "user"
    text: str = Field(min_length=1)


class TurnBody(Body):
    """Start a turn: `text`, or `messages` of which the last is the person's."""

    text: str | None = Field(default=None, description="What the person says; give this or `messages`.")
    messages: list[MessageBody] = Field(default=[], max_length=1_000)
    actor: str | None = Field(default=None, description="Who is spoken to; may be left out when there is one actor.")
    user: str = Field(default=DEFAULT_ASKER, description="On whose behalf, by id; tier and roles: the directory.")
    session: Id | None = Field(default=None, description="The conversation; one of the turn's own when not given.")
    turn: Id | None = Field(default=None, description="The turn's id, for safe retries; a UUIDv7 when not given.")
    tenant: Id = DEFAULT_TENANT
    route: str = Field(default="", max_length=64, description="On which of the actor's routes it begins.")
    step: str = Field(default="", max_length=64, description="At which step of the route.")
    dry_run: bool = Field(default=False, description="Judge every call, run none.")
    context: dict[str, Any] = Field(default={}, description="Extra context fields that the manifest declares.")

    @model_validator(mode="after")
    def _one_of_both(self) -> "TurnBody":
        if (self.text is None) == (not self.messages):
            raise ValueError("give either `text` or `messages`")
        if self.text is not None:
            _said(self.text)
        if self.messages and self.messages[-1].role != "user":
            raise ValueError("the last of `messages` must be the user's")
        return self

    @property
    def said(self) -> tuple[MessageBody, ...]:
        """The conversation so far, newest last."""
        return tuple(self.messages) if self.text is None else (MessageBody(text=self.text),)


class SayBody(Body):
    """Say something in a session."""

    text: str = Field(min_length=1, description="What the person says.")
    actor: str | None = Field(default=None, description="Who is spoken to; whoever the session talks to if not given.")
    user: str = Field(default=DEFAULT_ASKER, description="On whose behalf, by id; tier and roles: the directory.")
    id: MessageId | None = Field(default=None, description="The message's id, for safe retries; a UUIDv7 if not given.")
    route: str = Field(default="", max_length=64, description="On which of the actor's routes it begins.")
    step: str = Field(default="", max_length=64, description="At which step of the route.")
    dry_run: bool = Field(default=False, description="Judge every call, run none.")
    context: dict[str, Any] = Field(default={}, description="Extra context fields that the manifest declares.")

    @field_validator("text")
    @classmethod
    def _says_something(cls, words: str) -> str:
        return _said(words)


class ResultBody(Body):
    """A late result for one turn of a session."""

    turn: Id = Field(description="The turn that waits for it, or that ended `awaiting` or `delegated`.")
    text: str = Field(min_length=1, description="What its actor is told.")
    id: Id | None = Field(default=None, description="The result's id, for safe retries; a UUIDv7 if not given.")

    @field_validator("text")
    @classmethod
    def _says_something(cls, words: str) -> str:
        return _said(words)


class RememberBody(Body):
    """Give the same answer to the next calls like this one, where the policy allows it."""

    scope: Literal["session", "tenant"] = "session"
    where: str = Field(
        default="", max_length=2_000, description="CEL over `args`, true of this call; empty: exactly these arguments."
    )
    seconds: float = Field(default=3_600.0, gt=0, le=MAX_REMEMBERED_SECONDS, description="For how long.")
    uses: int = Field(default=10, ge=1, le=MAX_REMEMBERED_USES, description="For how many calls at most.")


_SEEN: Final = "With `approved`, where the card is not whole: `seen` of the request as its own address gave it."
_HASH: Final = "That of the request that was shown; another is stale. Only the development profile takes none."


class DecideBody(Body):
    """Answer one request."""

    verdict: Literal["approved", "denied", "happened"] = Field(
        description="Of a call in doubt: it did not happen and may run, give up, or it happened."
    )
    reason: str = Field(default="", max_length=2_000, description="The agent reads it when the verdict is denied.")
    revision: int | None = Field(default=None, ge=1, description="The revision that was shown; another is stale.")
    question_hash: str = Field(default="", max_length=64, description=_HASH)
    edited_args: dict[str, Any] | None = Field(
        default=None, description="All arguments as they shall be instead, with `approved`; a mask keeps what it hides."
    )
    result: str = Field(default="", max_length=REASON_CHARS, description="What came of it, with `happened`.")
    confirm: str = Field(default="", max_length=REASON_CHARS, description=_CONFIRM)
    seen: str = Field(default="", max_length=64, description=_SEEN)
    remember: RememberBody | None = None
    as_person: str | None = Field(
        default=None, alias="as", min_length=1, description="Who answers (development profile only)."
    )

    @model_validator(mode="after")
    def _can_be_carried(self) -> "DecideBody":
        if why := out_of_bounds(self.edited_args):
            raise ValueError(f"`edited_args` holds {why}")
        return self


class BatchItem(Body):
    """One of several answers; each names what was shown. A card that is not whole is approved by itself."""

    id: str = Field(min_length=1, max_length=200, description="An approval id or a short code.")
    revision: int = Field(ge=1, description="The revision that was shown; another is stale.")
    question_hash: str = Field(min_length=64, max_length=64, description=_HASH)
    verdict: Literal["approved", "denied"]
    reason: str = Field(default="", max_length=2_000, description="The agent reads it when the verdict is denied.")
    confirm: str = Field(default="", max_length=REASON_CHARS, description=_CONFIRM)


class BatchBody(Body):
    """Answer several requests, each by itself: one that is refused keeps none of the others from counting."""

    decisions: list[Any] = Field(min_length=1, max_length=BATCH_DECISIONS)
    as_person: str | None = Field(
        default=None, alias="as", min_length=1, description="Who answers (development profile only)."
    )


class FreezeBody(Body):
    """Deny everything in a tenant until it is thawed."""

    tenant: Id | None = Field(default=None, description="The caller's own when not given.")
    reason: str = Field(min_length=1, max_length=REASON_CHARS, description="The agents and everybody asked read it.")
    as_person: str | None = Field(
        default=None, alias="as", min_length=1, description="Who freezes (development profile only)."
    )


class WithdrawBody(Body):
    """Withdraw one waiting request."""

    reason: str = Field(default="", max_length=2_000)
    as_person: str | None = Field(
        default=None, alias="as", min_length=1, description="Who withdraws (development profile only)."
    )


class CancelBody(Body):
    """Stop a turn; nothing needs to be said."""


class TurnLinks(BaseModel):
    """Where to follow a turn."""

    self: str
    events: str
    page: str
    temporal: str
    """Empty where no address of Temporal's UI is known."""


class TurnStarted(BaseModel):
    """The answer to a started turn; `id` is `<tenant>.<session>.<turn>`."""

    id: str
    tenant: str
    session: str
    turn: str
    links: TurnLinks


class RestOfResult(BaseModel):
    """A piece of a result that was cut: `start` counts characters, `total` is how many are kept.

    `next` is where the next piece begins, null at the end.
    """

    call: str
    tool: str
    start: int
    total: int
    next: int | None
    text: str


class SessionLinks(BaseModel):
    """Where to follow a session; `turn` is empty until it is known which turn answers."""

    self: str
    turn: str
    page: str


class SessionSaid(BaseModel):
    """The answer to a message or a late result; `id` is `<tenant>.<session>`, `turn` the turn that it is for."""

    id: str
    tenant: str
    session: str
    turn: str
    status: Literal["accepted", "refused", "pending"]
    code: str = ""
    message: str = ""
    links: SessionLinks
