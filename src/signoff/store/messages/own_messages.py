"""Stores replies, reminders and closings: their vendor ids and the requests they concern."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, and_, delete, select, update

from signoff.contracts.frozen_model import FrozenModel
from signoff.store.claim_conditions import insert_new
from signoff.store.leases import clip_text, in_seconds
from signoff.store.store import Store
from signoff.store.tables import OWN_MESSAGES, StoreClock

_VENDOR_CHARS: Final = 500


class MessageSubject(FrozenModel):
    """One request that a message concerns, as shown to the recipient."""

    approval: str
    code: str
    """The request's short code."""
    revision: int
    question_hash: str
    whole: bool
    """Whether the recipient was shown every value."""
    thread: str = ""
    """The hash of the shown messages."""


class OwnMessage(FrozenModel):
    """A message sent in addition to a card."""

    subjects: tuple[MessageSubject, ...] = ()
    """The requests that the message concerns."""
    words: tuple[str, ...] = ()
    """The words of an email, for recognising quotes of it."""
    notice: bool = False
    """Whether it only informs: a reply to it decides nothing."""


class OwnMessages:
    """Reads and writes these messages. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def note(self, channel: str, vendor_id: str, tenant: str, person: str, message: OwnMessage) -> None:
        """A later message with the same id, as in a thread, replaces this one."""
        named = {"channel": channel, "vendor_id": clip_text(vendor_id, _VENDOR_CHARS)}
        values = {"tenant": tenant, "person": person, "content": message.model_dump_json()}
        ours = and_(*(OWN_MESSAGES.c[name] == value for name, value in named.items()))

        def write(connection: Connection) -> None:
            if not insert_new(connection, OWN_MESSAGES, named | values):
                connection.execute(update(OWN_MESSAGES).where(ours).values(**values, sent_at=StoreClock()))

        await self._store.run(write)

    async def find(self, channel: str, vendor_ids: Sequence[str], tenant: str, person: str) -> OwnMessage | None:
        """Return the messages with these ids as one."""
        query = select(OWN_MESSAGES.c.content).where(
            OWN_MESSAGES.c.channel == channel,
            OWN_MESSAGES.c.vendor_id.in_({clip_text(each, _VENDOR_CHARS) for each in vendor_ids if each}),
            OWN_MESSAGES.c.tenant == tenant,
            OWN_MESSAGES.c.person == person,
        )
        rows = await self._store.run(lambda connection: connection.execute(query).scalars().all())
        messages = [OwnMessage.model_validate_json(row) for row in rows]
        if not messages:
            return None
        subjects = {each.approval: each for message in messages for each in message.subjects}
        words = tuple(words for message in messages for words in message.words)
        is_notice = any(message.notice for message in messages)
        return OwnMessage(subjects=tuple(subjects.values()), words=words, notice=is_notice)

    async def sweep(self, older_than: timedelta) -> None:
        old = delete(OWN_MESSAGES).where(OWN_MESSAGES.c.sent_at < in_seconds(-older_than.total_seconds()))
        await self._store.run(lambda connection: connection.execute(old).rowcount)
