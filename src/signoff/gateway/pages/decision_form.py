"""Reads the form of a card: the verdict and its details."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from signoff.approvals.confirmation import is_confirmed
from signoff.approvals.request_state import INBOX
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import ASSIGNING, Assigning, GrantRequest, PasskeyAssertion, Verdict
from signoff.contracts.errors import BadRequest
from signoff.contracts.limits import MAX_REMEMBERED_USES, REASON_CHARS
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import AssignmentBody, DecisionAuthor, DecisionDraft
from signoff.formats.json_reader import NotJson, read_json
from signoff.gateway.approvals.decision_parser import read_draft
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.pages.card_view import word_to_type
from signoff.languages.catalogue import text

VERDICTS: Final[tuple[Verdict, ...]] = ("approved", "denied")
DOUBT_VERDICTS: Final[tuple[Verdict, ...]] = ("happened", "approved", "denied")
SPANS: Final[Mapping[str, float]] = {
    "1h": 3_600.0,
    "8h": 8 * 3_600.0,
    "1d": 86_400.0,
    "7d": 7 * 86_400.0,
    "30d": 30 * 86_400.0,
}
"""Choices for the lifetime of a remembered answer, in seconds."""
USES: Final = 10
_DIGITS: Final = 9
"""More digits than any revision has: Python refuses to parse numbers with thousands of digits."""
WHERE_CHARS: Final = 2_000


def verbs_of(request: ApprovalRequest) -> tuple[Verdict, ...]:
    return DOUBT_VERDICTS if request.kind == "in_doubt" else VERDICTS


def verdict_in(form: Mapping[str, str]) -> Verdict | None:
    """Return `None` for any other value, which is never an approval."""
    return next((each for each in DOUBT_VERDICTS if each == form.get("verdict")), None)


def draft_in(form: Mapping[str, str], approval_id: str, verdict: Verdict, language: str) -> DecisionDraft:
    """Raises `BadRequest` with the problem."""
    happened = verdict == "happened"
    fields: dict[str, Any] = {
        "verdict": verdict,
        "reason": form.get("reason", "").strip()[:REASON_CHARS],
        "revision": int(form["revision"][:_DIGITS]) if form.get("revision", "").isdecimal() else None,
        "question_hash": form.get("question_hash", ""),
        "thread": form.get("thread", ""),
        "delivery_id": form.get("delivery", ""),
        "remember": None if happened else remember_in(form, language),
        "result": form.get("result", "").strip()[:REASON_CHARS] if happened else "",
        "confirm": form.get("typed", "")[:REASON_CHARS],
        "passkey": json_in(form, "passkey"),
    }
    draft = read_draft(fields, approval_id)
    if isinstance(draft, Receipt):
        raise BadRequest(draft.message)
    return draft


def json_in(form: Mapping[str, str], name: str) -> Any:
    """Return the JSON that a script wrote into a field, `None` for an empty one. Raises `BadRequest`."""
    try:
        return read_json(form[name]) if form.get(name) else None
    except NotJson as error:
        raise BadRequest(f"`{name}` {error}") from None


def passkey_in(form: Mapping[str, str]) -> PasskeyAssertion | None:
    """Raises `BadRequest`."""
    sent = json_in(form, "passkey")
    try:
        return None if sent is None else PasskeyAssertion.model_validate(sent)
    except ValidationError:
        raise BadRequest("`passkey`: no assertion of a passkey") from None


def assignment_in(form: Mapping[str, str]) -> tuple[Assigning, AssignmentBody] | None:
    """Return `None` without a person or a wish."""
    verdict = next((each for each in ASSIGNING if each == form.get("verdict")), None)
    try:
        body = AssignmentBody(
            to=form.get("to", ""),
            revision=int(form["revision"][:_DIGITS]) if form.get("revision", "").isdecimal() else None,
            question_hash=form.get("question_hash", ""),
            delivery_id=form.get("delivery", ""),
        )
    except ValidationError:
        return None
    return None if verdict is None else (verdict, body)


def typing_note(request: ApprovalRequest, draft: DecisionDraft, visitor: Visitor) -> str:
    """Return "" if the confirmation is correct or the request is settled.

    Only for display: the decision itself checks the same rule.
    """
    if request.state != "pending" or is_confirmed(request, draft.confirm):
        return ""
    return text("card.typed_wrong", visitor.formatter.language, detail=word_to_type(request, visitor))


def author_of(visitor: Visitor, channel: str = INBOX) -> DecisionAuthor:
    browser = visitor.undo_mark if channel == INBOX else ""
    return DecisionAuthor(visitor.person, channel, visitor.assurance, browser=browser)


def remember_in(form: Mapping[str, str], language: str) -> GrantRequest | None:
    """Raises `BadRequest`."""
    if form.get("remember") != "on":
        return None
    uses = form.get("uses", "").strip()
    if not (uses.isascii() and uses.isdecimal() and 1 <= int(uses[:9]) <= MAX_REMEMBERED_USES):
        raise BadRequest(text("remember.bad_uses", language, most=MAX_REMEMBERED_USES), language=language)
    where = form.get("where", "").strip()[:WHERE_CHARS] if form.get("which") == "where" else ""
    if form.get("which") == "where" and not where:
        raise BadRequest(text("remember.bad_where", language), language=language)
    return GrantRequest(
        scope="tenant" if form.get("scope") == "tenant" else "session",
        where=where,
        seconds=SPANS.get(form.get("span", ""), SPANS["1h"]),
        uses=int(uses),
    )
