"""The rules of approvers' questions about a waiting request. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from signoff.approvals.machine import refusal, settled_receipt
from signoff.contracts.approval import ApprovalRequest, RequestMessage
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.receipt import Receipt

QUESTIONS: Final = 3
"""Largest number of questions about one approval."""


def hash_thread(messages: Sequence[RequestMessage]) -> str:
    """Return the hash of the messages, or "" without messages."""
    return sha256_hex([each.model_dump(mode="json") for each in messages]) if messages else ""


def unanswered(messages: Sequence[RequestMessage]) -> RequestMessage | None:
    """Return the question that the agent has still to answer."""
    return messages[-1] if messages and messages[-1].by == "approver" else None


def questions_left(messages: Sequence[RequestMessage]) -> int:
    return max(QUESTIONS - sum(each.by == "approver" for each in messages), 0)


def is_repeated(messages: Sequence[RequestMessage], question: RequestMessage, since: datetime) -> bool:
    """Return whether the same person has asked the same, on the same channel, since its arrival."""
    content = ("by", "subject", "channel", "revision", "text")
    recent = (each for each in messages if each.at is not None and each.at >= since)
    return any(all(getattr(each, name) == getattr(question, name) for name in content) for each in recent)


def answers_in(messages: Sequence[RequestMessage]) -> int:
    """Return the number of answered questions. Each one makes new cards."""
    # A worker can add messages without a question.
    answers = sum(each.by == "agent" for each in messages)
    return min(answers, len(messages) - answers, QUESTIONS)


def question_problem(request: ApprovalRequest, messages: Sequence[RequestMessage], text: str) -> Receipt | None:
    """Return why an approver cannot ask this now, or `None`. `request` is in its present state."""
    if request.state != "pending":
        return settled_receipt(request)
    if request.kind != "approval":
        return refusal(request, "not_allowed", "a request about an unknown outcome takes no questions")
    if not text.strip() or len(text) > REASON_CHARS:
        return refusal(request, "malformed", f"`text`: 1 to {REASON_CHARS} characters")
    if unanswered(messages) is not None:
        return refusal(request, "not_allowed", why="asked")
    if not questions_left(messages):
        return refusal(request, "not_allowed", why="questions")
    return None


def thread_problem(request: ApprovalRequest, thread: str, messages: Sequence[RequestMessage]) -> Receipt | None:
    """Return the refusal of an approval that does not name the latest message."""
    return None if thread == hash_thread(messages) else refusal(request, "stale", why="thread")
