"""Parses decisions from the API, pages and channels. Unclear input becomes a `malformed` receipt, never an approval."""

from typing import Any, Final

from pydantic import ValidationError

from signoff.contracts.limits import DECISION_BYTES, DELIVERY_CHARS
from signoff.contracts.message import APPROVAL_RESPONSE
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.requests import DecisionDraft, sentence
from signoff.formats.json_reader import NotJson, read_json
from signoff.formats.replace import replace
from signoff.gateway.auth.person_place import whose

_BY_ADDRESS: Final = whose("`?as=PERSON` in the address")
_BY_BODY: Final = whose("`user` in the body")


def refused_receipt(code: ReceiptCode, approval_id: str, message: str) -> Receipt:
    return Receipt(status="refused", code=code, approval_id=approval_id, message=message)


def read_draft(given: Any, approval_id: str = "", *, person: str = _BY_ADDRESS) -> DecisionDraft | Receipt:
    """Unclear input is never an approval.

    `given` is a JSON object, or a form converted by a page or channel. `approval_id` comes from the address.
    """
    try:
        draft = DecisionDraft.model_validate(given)
    except ValidationError as error:
        message = sentence(error.errors(include_url=False, include_input=False, include_context=False), person)
        return refused_receipt("malformed", approval_id, message)
    if approval_id and draft.approval_id not in ("", approval_id):
        return refused_receipt("malformed", approval_id, "`approval_id` differs from the address")
    return replace(draft, approval_id=approval_id or draft.approval_id)


def read_batched(item: Any, approval_id: str, *, person: str = _BY_ADDRESS) -> DecisionDraft | Receipt:
    """Each item must name the question that was shown."""
    draft = read_draft(item, person=person)
    if isinstance(draft, Receipt):
        return replace(draft, approval_id=approval_id)
    named = {"approval_id": draft.approval_id, "revision": draft.revision, "question_hash": draft.question_hash}
    missing = [f"`{name}`" for name, value in named.items() if not value]
    return refused_receipt("malformed", approval_id, f"{', '.join(missing)}: missing") if missing else draft


def read_response(part: Any, approval_id: str) -> DecisionDraft | Receipt:
    if not isinstance(part, dict) or part.get("type") != APPROVAL_RESPONSE:
        message = f"`type`: a message takes parts of the type `{APPROVAL_RESPONSE}` alone"
        return refused_receipt("malformed", approval_id, message)
    return read_batched({name: value for name, value in part.items() if name != "type"}, approval_id, person=_BY_BODY)


def parse_draft(raw: bytes, approval_id: str) -> DecisionDraft | Receipt:
    if len(raw) > DECISION_BYTES:
        return refused_receipt("malformed", approval_id, f"a decision is at most {DECISION_BYTES} bytes")
    try:
        body = read_json(raw)
    except NotJson as error:
        return refused_receipt("malformed", approval_id, f"the body {error}")
    return read_draft(body, approval_id)


def with_key(draft: DecisionDraft, header: str | None) -> DecisionDraft | Receipt:
    """Use the `Idempotency-Key` header, if any, as delivery id. An invalid key gives a receipt."""
    if header is None:
        return draft
    if not 0 < len(header) <= DELIVERY_CHARS or not header.isascii() or not header.isprintable():
        message = f"`Idempotency-Key`: 1 to {DELIVERY_CHARS} printable ASCII characters"
        return refused_receipt("malformed", draft.approval_id, message)
    if draft.delivery_id not in ("", header):
        message = "`Idempotency-Key` and `delivery_id` mean the same and differ; keep one"
        return refused_receipt("malformed", draft.approval_id, message)
    return replace(draft, delivery_id=header)
