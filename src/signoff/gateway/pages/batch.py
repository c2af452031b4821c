"""Serves the decision of several requests at once. Each request is shown first and gets its own receipt."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from signoff.approvals.card import Amount, amount_of
from signoff.approvals.card_notes import INVISIBLE, LOOKALIKES
from signoff.approvals.confirmation import needs_typing
from signoff.contracts.decision import Verdict
from signoff.contracts.errors import SignoffError
from signoff.contracts.limits import UNDO_SECONDS
from signoff.contracts.receipt import Receipt
from signoff.gateway.approvals.decision_parser import refused_receipt
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.auth.dependencies import PAGE_DECIDE, PAGE_READ
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.pages.card_view import CardPage
from signoff.gateway.pages.decision_form import author_of, draft_in
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.lists.waiting_list import sum_words
from signoff.gateway.pages.request_loader import open_card, own_approval
from signoff.gateway.transport.middleware import unexpected_receipt
from signoff.languages.catalogue import text
from signoff.texts.endings import receipt_words
from signoff.texts.formatter import Formatter

MOST: Final = 20
"""More requests than a person can read at once are not decided together."""
_AT_ONCE: Final = 5
_DECEITFUL: Final = (LOOKALIKES, INVISIBLE)


@dataclass(frozen=True)
class BatchCard:
    """One request of a batch."""

    number: int
    """Its position."""
    card: CardPage
    alone: str
    """The reason why it is decided alone, or ""."""
    amount: Amount


@dataclass(frozen=True)
class BatchGroup:
    """The requests of one tool for one requester, in the order of the page."""

    title: str
    cards: tuple[BatchCard, ...]
    count: int
    """The number of requests that can be decided here."""
    sums: str
    """The sums of their amounts, or ""."""


@dataclass(frozen=True)
class BatchReceipt:
    """The effect of one decision."""

    card: CardPage | None
    approval: str
    state: str
    """Selects a colour."""
    words: str
    """The effect in words."""
    note: str
    """The reason why it did not count."""
    undo_token: str
    """The token of the form that undoes a denial, or ""."""


router = APIRouter(include_in_schema=False)


@router.api_route("/batch", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_batch(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the selected requests as cards."""
    return await _page(site, visitor, request.query_params.getlist("pick"))


@router.post("/batch", dependencies=[PAGE_DECIDE])
async def decide_batch(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Apply one verdict to all selected requests of the page, as they were shown."""
    language = visitor.formatter.language
    sent = await read_form(request)
    shown = [str(value) for value in sent.getlist("shown")][:MOST]
    ticked = [name for name in shown if name in {str(value) for value in sent.getlist("pick")}]
    form = {name: str(value) for name, value in sent.items()}
    if not visitor.opened(form.get("token", ""), _purpose(shown)):
        return await _page(site, visitor, shown, note=text("note.out_of_date", language), status=403)
    if form.get("verdict") not in ("approved", "denied"):
        return await _page(site, visitor, shown, note=text("note.no_verdict", language), status=422)
    if not ticked:
        return await _page(site, visitor, shown, note=text("batch.nobody", language), status=422)
    receipts = [
        found
        for start in range(0, len(ticked), _AT_ONCE)
        for found in await asyncio.gather(
            *(_one(site, visitor, name, shown.index(name), form) for name in ticked[start : start + _AT_ONCE])
        )
    ]
    return site.renderer.page("batch_done.html", visitor, nav="waiting", receipts=receipts, undo_seconds=UNDO_SECONDS)


async def _one(site: Site, visitor: Visitor, approval: str, number: int, form: Mapping[str, str]) -> BatchReceipt:
    language = visitor.formatter.language
    card: CardPage | None = None
    try:
        card = await open_card(site.deps, approval, visitor)
        alone = _alone(card) if card.request.state == "pending" else ""
        plain = {
            "reason": form.get("reason", ""),
            "revision": form.get(f"revision-{number}", ""),
            "question_hash": form.get(f"question_hash-{number}", ""),
            "delivery": form.get("delivery", ""),
        }
        verdict: Verdict = "approved" if form["verdict"] == "approved" else "denied"
        draft = draft_in(plain, approval, verdict, language)
        if alone:
            receipt = refused_receipt("not_allowed", approval, text(alone, language))
        else:
            receipt = await DecisionService(site.deps).decide(draft, author_of(visitor))
    except SignoffError as error:
        receipt = refused_receipt("unavailable", approval, error.message)
    # The others of the batch have counted, and their receipts must be shown.
    except Exception as error:
        receipt = unexpected_receipt(approval, error)
    good = receipt.status != "refused"
    return BatchReceipt(
        card=card,
        approval=approval,
        state=receipt.verdict if receipt.status == "accepted" else "wait" if good else "bad",
        words=text(_text_key(receipt), language),
        note="" if good else _why(receipt, visitor.formatter),
        undo_token=visitor.token(f"undo {approval}") if good and receipt.verdict == "denied" else "",
    )


async def _page(site: Site, visitor: Visitor, picked: list[str], *, note: str = "", status: int = 200) -> Response:
    names = list(dict.fromkeys(picked))
    for name in names:
        own_approval(visitor, name)
    opened = [await open_card(site.deps, name, visitor, compares=True) for name in names[:MOST]]
    cards = [
        BatchCard(
            number,
            card,
            text(why, visitor.formatter.language) if (why := _alone(card)) else "",
            amount_of(card.request.card.rows),
        )
        for number, card in enumerate(opened)
    ]
    ready = [each for each in cards if not each.alone]
    shown = [each.card.request.id for each in cards]
    context: dict[str, Any] = {
        "groups": _groups(cards, visitor.formatter),
        "ready": len(ready),
        "sums": sum_words((each.amount for each in ready), visitor.formatter),
        "reason_required": any(each.card.request.require_reason for each in ready),
        "more": MOST if len(names) > MOST else 0,
        "note": note,
        "token": visitor.token(_purpose(shown)),
        "delivery": secrets.token_hex(16),
    }
    return site.renderer.page("batch.html", visitor, status=status, nav="waiting", **context)


def _groups(cards: Sequence[BatchCard], formatter: Formatter) -> list[BatchGroup]:
    found: dict[tuple[str, str], list[BatchCard]] = {}
    for each in cards:
        found.setdefault((each.card.request.tool, each.card.request.requester.user), []).append(each)
    groups = []
    for some in found.values():
        ready, first = [each for each in some if not each.alone], some[0].card
        title = f"{first.request.card.tool_title} {formatter.text('waiting.for', who=first.requester)}"
        sums = sum_words((each.amount for each in ready), formatter)
        groups.append(BatchGroup(title, tuple(some), len(ready), sums))
    return groups


def _alone(card: CardPage) -> str:
    """Return the key of the reason to decide the request alone, or ""."""
    if card.request.state != "pending":
        return "batch.alone.over"
    if not card.decides:
        return "batch.alone.assurance" if card.is_eligible else "batch.alone.you"
    if card.request.preview is not None or card.request.preview_required:
        return "batch.alone.preview"
    if card.doubt:
        return "batch.alone.doubt"
    if card.unseen:
        return "batch.alone.unseen"
    if any(note in _DECEITFUL for note in card.request.card.notes):
        return "batch.alone.deceives"
    if card.thread:
        return "batch.alone.thread"
    return "batch.alone.typed" if needs_typing(card.request) else ""


def _text_key(receipt: Receipt) -> str:
    return f"state.{receipt.state}" if receipt.status == "accepted" else f"batch.{receipt.status}"


def _why(receipt: Receipt, formatter: Formatter) -> str:
    who = receipt.decided_name or receipt.decided_by
    return f"{receipt_words(receipt, formatter)}{f' ({who})' if who else ''}"


def _purpose(shown: list[str]) -> str:
    return f"batch {' '.join(shown)}"
