"""The API for custom channels: the base class, its inputs and outputs, and the words of cards."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.channels.base import Channel as Channel
    from signoff.channels.base import ChannelContext as ChannelContext
    from signoff.channels.base import ChannelOptions as ChannelOptions
    from signoff.channels.base import Receive as Receive
    from signoff.channels.card_text import LEAST_CHARS as LEAST_CHARS
    from signoff.channels.card_text import CardLimits as CardLimits
    from signoff.channels.card_text import CardWords as CardWords
    from signoff.channels.card_text import card_words as card_words
    from signoff.channels.channel_errors import Forged as Forged
    from signoff.channels.channel_errors import Malformed as Malformed
    from signoff.channels.channel_errors import NotDelivered as NotDelivered
    from signoff.channels.envelopes import ChannelReply as ChannelReply
    from signoff.channels.envelopes import CheckFinding as CheckFinding
    from signoff.channels.envelopes import ClosedCard as ClosedCard
    from signoff.channels.envelopes import Contact as Contact
    from signoff.channels.envelopes import DeliveryStatus as DeliveryStatus
    from signoff.channels.envelopes import InboundAction as InboundAction
    from signoff.channels.envelopes import InboundBatch as InboundBatch
    from signoff.channels.envelopes import InboundRequest as InboundRequest
    from signoff.channels.envelopes import OutboundCard as OutboundCard
    from signoff.channels.envelopes import OutboundNotice as OutboundNotice
    from signoff.channels.envelopes import RoomAct as RoomAct
    from signoff.channels.envelopes import RoomCard as RoomCard
    from signoff.channels.envelopes import SentCard as SentCard
    from signoff.channels.json_body import read_object as read_object
    from signoff.channels.outbound.receipt_text import closing_text as closing_text
    from signoff.channels.signature_check import HmacSignature as HmacSignature
    from signoff.channels.signature_check import check_same as check_same
    from signoff.channels.signature_check import check_time as check_time
    from signoff.channels.signature_check import hmac_base64 as hmac_base64
    from signoff.channels.signature_check import hmac_hex as hmac_hex
    from signoff.channels.vendor_http import VendorAnswer as VendorAnswer
    from signoff.channels.vendor_http import VendorErrors as VendorErrors
    from signoff.channels.vendor_http import VendorHttp as VendorHttp
    from signoff.channels.vendor_time import time_from_date_header as time_from_date_header
    from signoff.channels.vendor_time import time_from_iso as time_from_iso
    from signoff.channels.vendor_time import time_from_seconds as time_from_seconds
    from signoff.contracts.decision import Assurance as Assurance
    from signoff.contracts.decision import Verdict as Verdict
    from signoff.texts.formatter import Formatter as Formatter

_MODULES = {
    "Assurance": "signoff.contracts.decision",
    "Formatter": "signoff.texts.formatter",
    "LEAST_CHARS": "signoff.channels.card_text",
    "Receive": "signoff.channels.base",
    "read_object": "signoff.channels.json_body",
    "time_from_date_header": "signoff.channels.vendor_time",
    "time_from_iso": "signoff.channels.vendor_time",
    "time_from_seconds": "signoff.channels.vendor_time",
    "CardWords": "signoff.channels.card_text",
    "Channel": "signoff.channels.base",
    "ClosedCard": "signoff.channels.envelopes",
    "Contact": "signoff.channels.envelopes",
    "Forged": "signoff.channels.channel_errors",
    "InboundAction": "signoff.channels.envelopes",
    "HmacSignature": "signoff.channels.signature_check",
    "CardLimits": "signoff.channels.card_text",
    "Malformed": "signoff.channels.channel_errors",
    "ChannelContext": "signoff.channels.base",
    "NotDelivered": "signoff.channels.channel_errors",
    "OutboundCard": "signoff.channels.envelopes",
    "OutboundNotice": "signoff.channels.envelopes",
    "ChannelOptions": "signoff.channels.base",
    "InboundRequest": "signoff.channels.envelopes",
    "InboundBatch": "signoff.channels.envelopes",
    "ChannelReply": "signoff.channels.envelopes",
    "CheckFinding": "signoff.channels.envelopes",
    "RoomAct": "signoff.channels.envelopes",
    "RoomCard": "signoff.channels.envelopes",
    "SentCard": "signoff.channels.envelopes",
    "DeliveryStatus": "signoff.channels.envelopes",
    "VendorAnswer": "signoff.channels.vendor_http",
    "VendorErrors": "signoff.channels.vendor_http",
    "VendorHttp": "signoff.channels.vendor_http",
    "Verdict": "signoff.contracts.decision",
    "card_words": "signoff.channels.card_text",
    "check_same": "signoff.channels.signature_check",
    "check_time": "signoff.channels.signature_check",
    "closing_text": "signoff.channels.outbound.receipt_text",
    "hmac_base64": "signoff.channels.signature_check",
    "hmac_hex": "signoff.channels.signature_check",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
