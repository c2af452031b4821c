"""Stores approvers' questions about waiting requests, and the agents' answers."""

import logging
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, select

from signoff.contracts.approval import RequestMessage
from signoff.contracts.errors import NotFound
from signoff.formats.replace import replace
from signoff.store.change_notices import note_change
from signoff.store.questions.approval_rows import UNREADABLE
from signoff.store.store import Store
from signoff.store.tables import NOW, QUESTIONS, REQUEST_MESSAGES, time_from_millis

ASKED_FOR_SECONDS: Final = 86_400.0
"""The age in seconds after which an unanswered question is not listed, so that the list stays short."""
_OF: Final = (
    select(REQUEST_MESSAGES).where(REQUEST_MESSAGES.c.approval == bindparam("of")).order_by(REQUEST_MESSAGES.c.number)
)
_log = logging.getLogger(__name__)


class UnansweredMessage(NamedTuple):
    """An approver's question without an answer."""

    approval: str
    revision: int
    """The waiting revision of the request."""


def read_messages(connection: Connection, approval: str) -> tuple[RequestMessage, ...]:
    """Oldest first. Raises `NotFound` for forged rows."""
    rows = connection.execute(_OF, {"of": approval}).all()
    try:
        return tuple(
            replace(
                RequestMessage.model_validate_json(row.body),
                number=row.number,
                by=row.author,
                at=time_from_millis(row.written_at),
            )
            for row in rows
        )
    # Inside the transaction: outside it, any other error looks as if the store were unavailable.
    except UNREADABLE as error:
        _log.error("the messages about %r cannot be read: %s", approval, type(error).__name__)
        raise NotFound(f"there is no request `{approval}`") from None


def add_message(connection: Connection, approval: str, message: RequestMessage) -> int:
    """Return the number. Call under the approval's lock."""
    newest = select(func.max(REQUEST_MESSAGES.c.number)).where(REQUEST_MESSAGES.c.approval == approval)
    number = (connection.scalar(newest) or 0) + 1
    row = {
        "approval": approval,
        "number": number,
        "author": message.by,
        "body": replace(message, number=number).model_dump_json(exclude_defaults=True),
    }
    connection.execute(insert(REQUEST_MESSAGES), row)
    note_change(connection)
    return number


class RequestMessages:
    """Reads the messages in a store. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, approval: str) -> tuple[RequestMessage, ...]:
        return await self._store.read(lambda connection: read_messages(connection, approval))

    async def list_unanswered(self, older_than: float, limit: int) -> list[UnansweredMessage]:
        """Return the questions of waiting requests that their agents have not answered, oldest first."""
        later = REQUEST_MESSAGES.alias()
        query = (
            select(REQUEST_MESSAGES.c.approval, QUESTIONS.c.revision)
            .join(QUESTIONS, QUESTIONS.c.approval == REQUEST_MESSAGES.c.approval)
            .where(
                REQUEST_MESSAGES.c.author == "approver",
                REQUEST_MESSAGES.c.written_at <= NOW - round(older_than * 1000),
                REQUEST_MESSAGES.c.written_at > NOW - round(ASKED_FOR_SECONDS * 1000),
                QUESTIONS.c.ended_at.is_(None),
                QUESTIONS.c.settled_at.is_(None),
                ~select(later.c.number)
                .where(later.c.approval == REQUEST_MESSAGES.c.approval, later.c.number > REQUEST_MESSAGES.c.number)
                .exists(),
            )
            .order_by(REQUEST_MESSAGES.c.written_at)
            .limit(limit)
        )
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return [UnansweredMessage(*row) for row in rows]
