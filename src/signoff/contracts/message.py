"""Messages between people, models and tools, independent of any model library."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, computed_field, model_serializer

from signoff.contracts.call import ResultType, type_from_code
from signoff.contracts.content import BlobRef, Content, text_of
from signoff.contracts.frozen_model import FrozenModel

RESPONSE: Final = "response"
"""Text for the user. Every answer has this part, from `respond`'s `text`."""

PART_TYPES: Final = (
    "ack", "thinking", RESPONSE, "clarify", "error",
    "domain-data", "llm-context", "a2ui-surface", "artifact", "reasoning-trace", "citation", "progress",
)  # fmt: skip
"""Parts that a model may add to its answer."""
APPROVAL_REQUEST: Final = "approval-request"
"""An open request, in the answer of the turn that waits for it."""
APPROVAL_RESPONSE: Final = "approval-response"
"""An answer to one, in a message to its session."""
RESERVED_PART_TYPES: Final = (APPROVAL_REQUEST, APPROVAL_RESPONSE)
"""Made by the engine or sent by people, never written by a model."""
WITHHELD_PART_TYPES: Final = ("llm-context", "thinking", "reasoning-trace")
"""Sent only to other agents that accept them, under any declaration."""


class _Part(FrozenModel):
    """A part of a message, distinguished by its `kind`."""

    # Leave the return type out: the schema of the output would otherwise be that of any object.
    @model_serializer(mode="wrap")
    def _with_kind(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        """Write `kind` even without defaults: readers need it to distinguish parts."""
        return {"kind": self.kind, **write(self)}  # type: ignore[attr-defined]


class TextPart(_Part):
    """Text."""

    kind: Literal["text"] = "text"
    text: Content
    """A JSON string, inline or in the store."""


class CallPart(_Part):
    """A tool call proposed by the model."""

    kind: Literal["call"] = "call"
    call: str = ""
    """The call's id, such as `c1.1`."""
    provider_call: str = ""
    """The provider's own id of the call, used only for the provider."""
    tool: str
    args: Content
    """The arguments. `{}` if they are malformed."""
    malformed: str = ""
    """Why the arguments are not a JSON object within the limits, or ""."""
    surplus: bool = False
    """True if the call exceeds the limit of one completion."""


class ResultPart(_Part):
    """The one result of one call, in the model's form."""

    kind: Literal["result"] = "result"
    call: str
    provider_call: str = ""
    """The provider's own id of the call."""
    tool: str
    code: str
    """As in `CallOutcome`."""
    value: Content
    """The result. The model reads it after `note`."""
    note: str = ""
    """A remark before the value."""
    late: bool = False
    """True if the model got an earlier result of this call: that it waits."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> ResultType:
        """The type of the result, derived from its code. Not in histories."""
        return type_from_code(self.code)


Part = Annotated[TextPart | CallPart | ResultPart, Field(discriminator="kind")]


class Message(FrozenModel):
    """One message of a conversation."""

    role: Literal["user", "assistant", "tool"]
    parts: tuple[Part, ...] = ()
    late: bool = False
    """True for a late result in text, which no person wrote."""
    provider: BlobRef | None = None
    """The model library's own serialised response, read only by the model activity."""


def content_of(part: TextPart | CallPart | ResultPart) -> tuple[str, Content]:
    match part:
        case TextPart():
            return "text", part.text
        case CallPart():
            return "args", part.args
        case ResultPart():
            return "value", part.value


def words_of(message: Message) -> str:
    """Return the text of a message, without its calls and results."""
    return " ".join(text_of(part.text) for part in message.parts if isinstance(part, TextPart))


def user_message(text: str) -> Message:
    """The text is inline: store text over the inline limit first."""
    return Message(role="user", parts=(TextPart(text=Content(inline=text)),))


def part_types(more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the part types for a model: the known ones and the declared `more`."""
    return (*PART_TYPES, *more)
