"""Explains Twilio's error codes: whether a retry can help, and the remedy.

They are in the response to a message, or later in its status report. Twilio's `Error and warning dictionary` lists
them. Only codes count, never messages.
"""

from collections.abc import Mapping
from typing import Final

from signoff.channels import VendorAnswer, VendorErrors

OUTSIDE: Final = 63016
"""On WhatsApp: the person wrote last more than 24 hours ago, so that only an approved template reaches them."""
_PAUSES: Final[Mapping[int | str, float]] = {14107: 5.0, 20429: 5.0, 30001: 30.0, 63018: 5.0, 63038: 600.0}
"""Pauses in seconds after Twilio's rate limits: of the account, a number, a day."""
_PASSING: Final[frozenset[int | str]] = frozenset((20500, 20503, 30008, 63017))
"""Temporary faults of Twilio."""
_MEANINGS: Final[Mapping[int | str, str]] = {
    20003: "the credentials are not valid; check `account_sid` and `auth_token`, and that the account is active",
    20404: "there is no such account; check `account_sid`",
    21211: "it is no number that can be written to",
    21408: "the account may not write to that country; allow it in Twilio's geographic permissions",
    21606: "the sender is no number of the account that can send this; check `sender` and `via`",
    21608: "a trial account writes only to numbers that were verified",
    21609: "Twilio cannot call the gateway's public address",
    21610: "the person has written STOP to this number, and is sent nothing until they write START",
    21612: "this sender cannot reach that person; check `sender` and `via`",
    21614: "it is no mobile number",
    21617: "the message is too long",
    21655: "there is no template of that SID; check `content_sids`",
    21656: "the template's variables differ from the documented ones",
    21658: "the message is too long",
    21659: "the sender is no number of the account; check `sender`",
    30003: "the phone is switched off or cannot be reached",
    30004: "the person or their network blocks the message",
    30005: "the phone no longer exists",
    30006: "it is a landline, or its network takes no messages",
    30007: "a network took the message for spam",
    30034: "the number is not registered for messages to the United States (A2P 10DLC)",
    63003: "the person has no WhatsApp",
    63007: "the sender is no WhatsApp number of the account; check `sender` and `via`",
    63013: "WhatsApp refuses the message for a breach of its policy",
    63015: "the sandbox writes only to people who have joined it",
    OUTSIDE: "the person wrote last more than 24 hours ago; an approved template in `content_sids` would reach them",
    63024: "the person has no WhatsApp, or an old one",
    63027: "the template does not exist in its language, or is not approved",
    63028: "the template's number of variables differs from the documented one",
    63032: "WhatsApp keeps the message back from this person",
    63041: "WhatsApp has paused the template for its quality",
    63042: "WhatsApp has disabled the template for its quality",
    63049: "WhatsApp keeps the message back, so that people are not sent too many",
}


def _code(answer: VendorAnswer) -> int | None:
    # The response to an accepted message may already have the code of its failure.
    code = answer.body.get("error_code" if answer.succeeded else "code")
    return code if isinstance(code, int) and code else None


ERRORS: Final = VendorErrors("Twilio", _code, meanings=_MEANINGS, pauses=_PAUSES, passing=_PASSING)
