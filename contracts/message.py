"""Messages between people, models and tools: small, ours, independent of any model library."""

from typing import Annotated, Literal

from pydantic import Field

from signoff.contracts.content import BlobRef, Content, text_of
from signoff.contracts.frozen_model import Shape


class TextPart(Shape):
    """Words; `text` is a JSON string, inline or in the store."""

    kind: Literal["text"] = "text"
    text: Content


class CallPart(Shape):
    """A tool call proposed by the model; `surplus` when it is beyond what one completion may carry.

    `call` is our id (`c1.1`), `provider_call` the provider's own, which only goes back to the provider.
    `malformed` says why the arguments are not a JSON object within the limits; then `args` is `{}`.
    """

    kind: Literal["call"] = "call"
    call: str = ""
    provider_call: str = ""
    tool: str
    args: Content
    malformed: str = ""
    surplus: bool = False


class ResultPart(Shape):
    """The one result of one call, as the model reads it: `note`, then `value`; `code` as in `CallOutcome`."""

    kind: Literal["result"] = "result"
    call: str
    provider_call: str = ""
    tool: str
    code: str
    value: Content
    note: str = ""


Part = Annotated[TextPart | CallPart | ResultPart, Field(discriminator="kind")]


class Message(Shape):
    """One message. `provider` is the model library's own serialised response, read back by the model activity only."""

    role: Literal["user", "assistant", "tool"]
    parts: tuple[Part, ...] = ()
    provider: BlobRef | None = None


def content_of(part: TextPart | CallPart | ResultPart) -> tuple[str, Content]:
    """The name of the field of `part` that holds its content, and that content."""
    match part:
        case TextPart():
            return "text", part.text
        case CallPart():
            return "args", part.args
        case ResultPart():
            return "value", part.value


def words_of(message: Message) -> str:
    """What a message says in words, without its calls and results."""
    return " ".join(text_of(part.text) for part in message.parts if isinstance(part, TextPart))


def user_message(text: str) -> Message:
    """A person's words, inline. Text over the inline limit must be stored first."""
    return Message(role="user", parts=(TextPart(text=Content(inline=text)),))
