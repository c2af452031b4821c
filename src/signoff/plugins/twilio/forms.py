"""Parses Twilio's forms, each with one message or the status of one of ours, and computes their signatures.

Twilio adds and removes fields without notice. The signature covers every field, and unknown fields are ignored.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from signoff.channels import DeliveryStatus, InboundAction, InboundBatch, InboundRequest, Malformed, hmac_base64
from signoff.channels.whatsapp import read_button
from signoff.formats.visible_text import one_line
from signoff.plugins.twilio.errors import ERRORS
from signoff.plugins.twilio.messages import PREFIX, Via, is_address

_FORM: Final = "application/x-www-form-urlencoded"
_FIELDS: Final = 500
"""The most fields that are read. Twilio sends about thirty."""
_NOTHING: Final = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'
"""The instruction to Twilio to do nothing. Twilio would send any text in it to the message's author."""
_STATES: Final[Mapping[str, Literal["sent", "delivered", "read", "failed"]]] = {
    "accepted": "sent",
    "scheduled": "sent",
    "queued": "sent",
    "sending": "sent",
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "undelivered": "failed",
    "failed": "failed",
    "canceled": "failed",
}
_TYPES: Final = frozenset(("", "text", "button", "interactive"))
"""The types of messages whose words are an answer."""
_REACTION: Final = "reaction"
_CODE_CHARS: Final = 80


def signature(token: str, url: str, fields: Sequence[tuple[str, str]]) -> str:
    """Sort fields by name, then value, each once. `url` is the address of the post."""
    signed = url + "".join(name + value for name, value in sorted(set(fields)))
    # SHA-1 is Twilio's choice. Its known collisions do not forge an HMAC.
    return hmac_base64(token.encode(), signed.encode(), "sha1")


def list_spellings(url: str) -> tuple[str, ...]:
    """Twilio may sign an address unchanged, with or without the port."""
    parts = urlsplit(url)
    host = parts.netloc.removesuffix(f":{parts.port}")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    spellings = (url, *(parts._replace(netloc=netloc).geturl() for netloc in (host, f"{host}:{port}")))
    return tuple(dict.fromkeys(spellings))


def form_fields(body: bytes) -> list[tuple[str, str]]:
    """Parse the fields as Twilio signs them. Raises `ValueError`."""
    # Be strict: otherwise all bytes that are not UTF-8 become the same character and share a signature.
    return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)


def read_form(raw: InboundRequest, sender: str, via: Via) -> InboundBatch:
    """Parse a verified form for our number `sender`, or for any number if `sender` is a Messaging Service.

    Raises `Malformed`. Unknown contents only become an unknown status.
    """
    if raw.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Malformed(f"the content type is not {_FORM}")
    form: dict[str, str] = {}
    for name, value in form_fields(raw.body):
        form.setdefault(name, value)
    key = form.get("MessageSid", "")
    if not key:
        raise Malformed("it is about no message")
    if "MessageStatus" in form:
        return InboundBatch(statuses=(_status(form, key),))
    made = _message(form, key, sender, via)
    actions = (made,) if isinstance(made, InboundAction) else ()
    statuses = (made,) if isinstance(made, DeliveryStatus) else ()
    return InboundBatch(actions=actions, statuses=statuses, body=_NOTHING, media_type="text/xml")


def _message(form: Mapping[str, str], key: str, sender: str, via: Via) -> InboundAction | DeliveryStatus | None:
    """Return the action of a message, or the status of a message to record. `None` for another number."""
    identity = form.get("From", "")
    if not sender.startswith("MG") and form.get("To", "") != PREFIX[via] + sender:
        return None
    kind, opted = form.get("MessageType", ""), form.get("OptOutType", "")
    button = read_button(form.get("ButtonPayload", ""))
    foreign = button is None and ("ButtonPayload" in form or "ButtonText" in form)
    if opted in ("STOP", "HELP") or not is_address(identity, via):
        # Twilio itself replies to STOP and HELP. An address of the other kind (`via`) identifies no person here.
        code = one_line(f"{kind or 'message'} {opted}".strip(), _CODE_CHARS).text
        return DeliveryStatus(key=key, vendor_id=key, state="unknown", code=code)
    verdict, token = button or (None, "")
    about = form.get("OriginalRepliedMessageSid", "")
    return InboundAction(
        key=key,
        identity=identity,
        token=token,
        vendor_ids=(about,) if about else (),
        verdict=verdict,
        text=form.get("Body", "") if button is None and not foreign and _says(form, kind, opted) else "",
        unclear=_REACTION if kind == _REACTION else "",
        where={"to": identity},
    )


def _says(form: Mapping[str, str], kind: str, opted: str) -> bool:
    """Return whether the words are an answer: not with a picture, not forwarded, and not a YES to all messages."""
    passed_on = "true" in (form.get("Forwarded", ""), form.get("FrequentlyForwarded", ""))
    return kind in _TYPES and form.get("NumMedia", "0") in ("", "0") and not opted and not passed_on


def _status(form: Mapping[str, str], key: str) -> DeliveryStatus:
    state = form["MessageStatus"]
    known, new = _STATES.get(state), one_line(state, _CODE_CHARS).text
    written = form.get("ErrorCode", "")
    code = int(written) if written.isascii() and written.isdigit() and len(written) < 9 else 0
    return DeliveryStatus(
        # One key for each state of a message: Twilio sends them one by one, and repeats some.
        key=f"{key}:{new}",
        vendor_id=key,
        state=known or "unknown",
        code=str(code) if code else "" if known else new,
        message=ERRORS.meaning(code) if code else "",
    )
