"""Parses what Twilio brings: forms, each with one message or with a status of one of ours, and their signatures.

Fields come and go without notice: the signature covers every field that comes, and an unknown one means nothing.
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
"""So many fields are read; Twilio sends some thirty."""
_NOTHING: Final = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'
"""What Twilio is to do about a message: a text here would be sent to who wrote it."""
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
"""Of messages whose words are somebody's answer."""
_REACTION: Final = "reaction"
_CODE_CHARS: Final = 80


def signature(token: str, url: str, fields: Sequence[tuple[str, str]]) -> str:
    """Computes Twilio's signature of a form posted to `url`: fields by name, those of one name by value, each once."""
    signed = url + "".join(name + value for name, value in sorted(set(fields)))
    # SHA-1 is Twilio's choice. That others find collisions of it forges no HMAC.
    return hmac_base64(token.encode(), signed.encode(), "sha1")


def list_spellings(url: str) -> tuple[str, ...]:
    """Returns an address as Twilio may sign it: as it is, and with the port or without it."""
    parts = urlsplit(url)
    host = parts.netloc.removesuffix(f":{parts.port}")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    spellings = (url, *(parts._replace(netloc=netloc).geturl() for netloc in (host, f"{host}:{port}")))
    return tuple(dict.fromkeys(spellings))


def form_fields(body: bytes) -> list[tuple[str, str]]:
    """Parses the fields of a form, as they are signed. Raises `ValueError`."""
    # Strict: else any bytes that are no UTF-8 read as the same character, and share a signature.
    return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)


def read_form(raw: InboundRequest, sender: str, via: Via) -> InboundBatch:
    """Parses a verified form for our number `sender`, or for any of ours where it is a Messaging Service.

    Raises `Malformed`; what is new to us becomes an unknown status, and no more.
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
    """Reads a message, said or only to be written down; None for one to another number."""
    identity = form.get("From", "")
    if not sender.startswith("MG") and form.get("To", "") != PREFIX[via] + sender:
        return None
    kind, opted = form.get("MessageType", ""), form.get("OptOutType", "")
    found = read_button(form.get("ButtonPayload", ""))
    foreign = found is None and ("ButtonPayload" in form or "ButtonText" in form)
    if opted in ("STOP", "HELP") or not is_address(identity, via):
        # To STOP and HELP Twilio has answered already. Who wrote by another way than ours is not known by it.
        code = one_line(f"{kind or 'message'} {opted}".strip(), _CODE_CHARS).text
        return DeliveryStatus(key=key, vendor_id=key, state="unknown", code=code)
    verdict, token = found or (None, "")
    about = form.get("OriginalRepliedMessageSid", "")
    return InboundAction(
        key=key,
        identity=identity,
        token=token,
        vendor_ids=(about,) if about else (),
        verdict=verdict,
        text=form.get("Body", "") if found is None and not foreign and _says(form, kind, opted) else "",
        unclear=_REACTION if kind == _REACTION else "",
        where={"to": identity},
    )


def _says(form: Mapping[str, str], kind: str, opted: str) -> bool:
    """Returns whether the words are an answer: not below a picture, not somebody else's passed on, and not YES to being
    sent messages at all.
    """
    passed_on = "true" in (form.get("Forwarded", ""), form.get("FrequentlyForwarded", ""))
    return kind in _TYPES and form.get("NumMedia", "0") in ("", "0") and not opted and not passed_on


def _status(form: Mapping[str, str], key: str) -> DeliveryStatus:
    state = form["MessageStatus"]
    known, new = _STATES.get(state), one_line(state, _CODE_CHARS).text
    written = form.get("ErrorCode", "")
    code = int(written) if written.isascii() and written.isdigit() and len(written) < 9 else 0
    return DeliveryStatus(
        # Each state of a message once: Twilio brings them one by one, and some again.
        key=f"{key}:{new}",
        vendor_id=key,
        state=known or "unknown",
        code=str(code) if code else "" if known else new,
        message=ERRORS.meaning(code) if code else "",
    )
