from typing import Any

from tables import table

from signoff.contracts.activity_messages import ModelReply, Response
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.message import CallPart, Message


def reply(args: Content, call: str = "c1.1", **fields: Any) -> ModelReply:
    message = Message(role="assistant", parts=(CallPart(call=call, tool="respond", args=args),))
    return ModelReply(message=message, respond_call="c1.1", **fields)


def test_plain_answer_is_read_from_the_respond_call() -> None:
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
def test_malformed_reply_has_no_answer(args: Content, call: str) -> None:
    """Any scheduler of activities may write one: an exception in the turn would fail its task forever."""
    assert reply(args, call).answer is None
