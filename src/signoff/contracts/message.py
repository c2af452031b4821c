"""Messages between people, models and tools, independent of any model library."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, computed_field, model_serializer

from signoff.contracts.call import ResultType, type_from_code
from signoff.contracts.content import BlobRef, Content, text_of
from signoff.contracts.frozen_model import FrozenModel

RESPONSE: Final = "response"
"""Words for the user; every answer has this part, made of `respond`'s `text`."""

PART_TYPES: Final = (
    "ack", "thinking", RESPONSE, "clarify", "error",
    "domain-data", "llm-context", "a2ui-surface", "artifact", "reasoning-trace", "citation", "progress",
)  # fmt: skip
"""What a model may add to its answer."""
APPROVAL_REQUEST: Final = "approval-request"
"""An open request, in the answer of the turn that waits for it."""
APPROVAL_RESPONSE: Final = "approval-response"
"""An answer to one, in a message to its session."""
RESERVED_PART_TYPES: Final = (APPROVAL_REQUEST, APPROVAL_RESPONSE)
"""Made by the engine or sent by people, never written by a model."""
WITHHELD_PART_TYPES: Final = ("llm-context", "thinking", "reasoning-trace")
"""Told to other agents only where they say that they take them, whatever an installation declares."""


class _Part(FrozenModel):
    """A part of a message, told from the others by its `kind`."""

    # Not annotated: a schema of what is written would else be that of any object.
    @model_serializer(mode="wrap")
    def _with_kind(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        """Writes `kind` also where defaults are left out: it is how a reader tells what this is."""
        return {"kind": self.kind, **write(self)}  # type: ignore[attr-defined]


class TextPart(_Part):
    """Words."""

    kind: Literal["text"] = "text"
    """Tells the parts apart."""
    text: Content
    """A JSON string, inline or in the store."""


class CallPart(_Part):
    """A tool call proposed by the model."""

    kind: Literal["call"] = "call"
    """Tells the parts apart."""
    call: str = ""
    """The call's id, such as `c1.1`."""
    provider_call: str = ""
    """The provider's own id of the call, which only goes back to the provider."""
    tool: str
    """The tool's name."""
    args: Content
    """The arguments; `{}` where they are malformed."""
    malformed: str = ""
    """Why the arguments are not a JSON object within the limits, or ""."""
    surplus: bool = False
    """Whether the call is beyond what one completion may carry."""


class ResultPart(_Part):
    """The one result of one call, in the form in which the model reads it."""

    kind: Literal["result"] = "result"
    """Tells the parts apart."""
    call: str
    """The call's id."""
    provider_call: str = ""
    """The provider's own id of the call."""
    tool: str
    """The tool's name."""
    code: str
    """As in `CallOutcome`."""
    value: Content
    """The result; the model reads it after `note`."""
    note: str = ""
    """A remark before the value."""
    late: bool = False
    """Whether the model was given a result of this call before: that it waits."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> ResultType:
        """The type of the result, derived from its code; in no history."""
        return type_from_code(self.code)


Part = Annotated[TextPart | CallPart | ResultPart, Field(discriminator="kind")]


class Message(FrozenModel):
    """One message of a conversation."""

    role: Literal["user", "assistant", "tool"]
    """Whose message it is."""
    parts: tuple[Part, ...] = ()
    """Its parts."""
    late: bool = False
    """Whether it is a late result in words, which no person said."""
    provider: BlobRef | None = None
    """The model library's own serialised response, read back by the model activity only."""


def content_of(part: TextPart | CallPart | ResultPart) -> tuple[str, Content]:
    """Returns the name of the field of `part` that holds its content, and that content."""
    match part:
        case TextPart():
            return "text", part.text
        case CallPart():
            return "args", part.args
        case ResultPart():
            return "value", part.value


def words_of(message: Message) -> str:
    """Returns the words of a message, without its calls and results."""
    return " ".join(text_of(part.text) for part in message.parts if isinstance(part, TextPart))


def user_message(text: str) -> Message:
    """Makes a message of a person's words, inline. Text over the inline limit must be stored first."""
    return Message(role="user", parts=(TextPart(text=Content(inline=text)),))


def part_types(more: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the types that a model may use where `more` are declared beside the known ones."""
    return (*PART_TYPES, *more)
