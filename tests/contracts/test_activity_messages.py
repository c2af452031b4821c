"""Messages between workflows and activities: what a turn reads of them, whoever wrote them."""

from typing import Any

from tables import table

from signoff.contracts.activity_messages import ModelReply, Response
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.message import CallPart, Message


def reply(args: Content, call: str = "c1.1", **fields: Any) -> ModelReply:
    """A reply that says it answers by `c1.1`, and has one call with this id and these arguments."""
    message = Message(role="assistant", parts=(CallPart(call=call, tool="respond", args=args),))
    return ModelReply(message=message, respond_call="c1.1", **fields)


def test_an_answer_of_words_alone_stands_in_its_call() -> None:
    message = reply(Content(inline={"text": "done"}))
    assert message.answer == Response(text=Content(inline="done"))
    other = Response(text=Content(inline="other"))
    assert reply(Content(inline={"text": "done"}), response=other).answer == other


@table(
    ("args", "call"),
    (Content(inline={"text": "done"}), "c1.2"),
    (Content(inline={"words": "done"}), "c1.1"),
    (Content(inline={"text": 3}), "c1.1"),
    (Content(inline=["text"]), "c1.1"),
    (Content(inline=None), "c1.1"),
    (Content(blob=BlobRef(sha256="0" * 64, size=9)), "c1.1"),
)
def test_a_reply_that_holds_no_answer_has_none(args: Content, call: str) -> None:
    """Whoever schedules activities may write one: raised in the turn, its task would fail for ever."""
    assert reply(args, call).answer is None
