"""Finds the emails that were sent about a card, and checks the sender of an email in another person's name."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from signoff.channels.answer_text.sent_words import sent_words
from signoff.channels.base import Channel
from signoff.channels.envelopes import SENT, ChannelReply, InboundAction
from signoff.contracts.person import Person
from signoff.people.directory import Directory
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.messages.own_messages import OwnMessages


async def load_sent_words(
    deliveries: DeliveryQueue, own_messages: OwnMessages, channel: Channel, person: Person, action: InboundAction
) -> tuple[str, ...]:
    """Return the words of the emails that Signoff sent about the card or question of an answer.

    Raises `StoreUnavailable`.
    """
    card = await deliveries.by_token(action.token) if action.token else None
    rows = [card] if card else await deliveries.by_vendor(channel.name, action.vendor_ids)
    ours = await own_messages.find(channel.name, action.vendor_ids, person.tenant, person.id)
    return (*(words for row in rows for words in row.handle.get(SENT, ())), *(ours.words if ours else ()))


async def note_sent_words(deliveries: DeliveryQueue, where: Mapping[str, Any], reply: ChannelReply) -> None:
    """Store the words of an email reply, which the next answer may quote. Raises `StoreUnavailable`."""
    token = where.get("token")
    if token:
        await deliveries.add_to_handle(str(token), SENT, [sent_words(reply.text.split("\n"))])


def may_send_for(person: Person, sender: str, directory: Directory, channel: str, now: datetime) -> bool:
    """True for the person's own address and a delegate's."""
    assistant = directory.by_identity(channel, sender, person.tenant)
    if assistant is None or not assistant.active:
        return False
    deputies_of = directory.delegators(assistant.id, person.tenant, now)
    return assistant.id == person.id or any(each.id == person.id for each in deputies_of)
