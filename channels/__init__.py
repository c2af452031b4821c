"""What a channel of one's own needs: the class to write, what it is given and gives, and the words of cards."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.channels.base import Channel as Channel
    from signoff.channels.base import Forged as Forged
    from signoff.channels.base import Malformed as Malformed
    from signoff.channels.base import Means as Means
    from signoff.channels.base import NotDelivered as NotDelivered
    from signoff.channels.base import Options as Options
    from signoff.channels.envelopes import Closed as Closed
    from signoff.channels.envelopes import Heard as Heard
    from signoff.channels.envelopes import Notice as Notice
    from signoff.channels.envelopes import Raw as Raw
    from signoff.channels.envelopes import Received as Received
    from signoff.channels.envelopes import Reply as Reply
    from signoff.channels.envelopes import Sent as Sent
    from signoff.channels.envelopes import Status as Status
    from signoff.channels.outbound.card_text import Limits as Limits
    from signoff.channels.outbound.card_text import card_words as card_words
    from signoff.channels.outbound.receipt_text import closing_text as closing_text
    from signoff.channels.outbound_http import retry_after as retry_after
    from signoff.contracts.decision import Verdict as Verdict
    from signoff.texts.formatter import formatter_for as formatter_for

_MODULES = {
    "Channel": "signoff.channels.base",
    "Closed": "signoff.channels.envelopes",
    "Forged": "signoff.channels.base",
    "Heard": "signoff.channels.envelopes",
    "Limits": "signoff.channels.outbound.card_text",
    "Malformed": "signoff.channels.base",
    "Means": "signoff.channels.base",
    "NotDelivered": "signoff.channels.base",
    "Notice": "signoff.channels.envelopes",
    "Options": "signoff.channels.base",
    "Raw": "signoff.channels.envelopes",
    "Received": "signoff.channels.envelopes",
    "Reply": "signoff.channels.envelopes",
    "Sent": "signoff.channels.envelopes",
    "Status": "signoff.channels.envelopes",
    "Verdict": "signoff.contracts.decision",
    "card_words": "signoff.channels.outbound.card_text",
    "closing_text": "signoff.channels.outbound.receipt_text",
    "formatter_for": "signoff.texts.formatter",
    "retry_after": "signoff.channels.outbound_http",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
