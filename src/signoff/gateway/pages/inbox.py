"""Serves the approver's pages: the list of requests, the card, and the decision."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.approvals.request_state import INBOX
from signoff.contracts.decision import at_least
from signoff.contracts.errors import BadRequest, NotFound, Refused, ServerUnavailable, SignoffError
from signoff.contracts.ids import parse_approval_id
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionDraft
from signoff.contracts.responses import WaitingCard
from signoff.decisions.request_taker import RequestTaker
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.approvals.question_service import QuestionService
from signoff.gateway.approvals.request_holders import add_holders
from signoff.gateway.auth.dependencies import PAGE_DECIDE, PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.auth.streams import stream_events
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.errors import receipt_status
from signoff.gateway.live import event
from signoff.gateway.pages.batch import MOST
from signoff.gateway.pages.card_view import CardPage
from signoff.gateway.pages.decision_form import (
    SPANS,
    USES,
    assignment_in,
    author_of,
    draft_in,
    passkey_in,
    typing_note,
    verbs_of,
    verdict_in,
)
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.first_run import first_run
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.lists.waiting_list import (
    LISTED,
    PAGE,
    InboxRow,
    WaitingFilter,
    amount_words,
    filter_in,
    group_rows,
    passes,
)
from signoff.gateway.pages.previews.preview_view import load_image, load_preview, picture_response
from signoff.gateway.pages.request_loader import open_card, own_approval
from signoff.gateway.pages.value_view import read_page, show_page
from signoff.gateway.turn_starter import new_id
from signoff.languages.catalogue import text
from signoff.texts.endings import receipt_words
from signoff.texts.formatter import Formatter

LOOK_SECONDS: Final = 2.0
"""Seconds between queries of visibility for an open page. All followers share one query."""


router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_waiting(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the list."""
    choice = filter_in(request.query_params)
    rows = await _rows(site, visitor, choice.limit)
    # Further requests may match, too.
    matching = await _rows(site, visitor, choice.limit, choice) if choice.any and len(rows) > choice.limit else rows
    template = "_list.html" if request.query_params.get("part") == "list" else "waiting.html"
    context = _list(site, rows, visitor, choice, "", matching)
    return site.renderer.page(template, visitor, nav="waiting", **context)


@router.api_route("/approvals/{approval}", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_card(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show one request, next to the list if there is room."""
    approval_id = await site.conversations.approval_id(approval, visitor.person, visitor.person.tenant)
    if approval_id != approval:
        return RedirectResponse(f"/approvals/{approval_id}", status_code=303)
    if request.query_params.get("part") == "card":
        rows, card = await asyncio.gather(
            _rows(site, visitor, PAGE), open_card(site.deps, approval_id, visitor, quotes=True, compares=True)
        )
        return site.renderer.page("_card.html", visitor, **_card_context(card, visitor, rows))
    return await _card_page(site, visitor, approval_id)


@router.get("/approvals/{approval}/values", dependencies=[PAGE_READ])
async def show_values(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    own_approval(visitor, approval)
    loaded = await site.conversations.load(approval, visitor.person)
    context = await show_page(site.deps, loaded, visitor, visitor, request)
    return site.renderer.page("values.html", visitor, nav="waiting", back=f"/approvals/{approval}", **context)


@router.get("/approvals/{approval}/preview", dependencies=[PAGE_READ])
async def show_preview(approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the whole preview of the effect."""
    own_approval(visitor, approval)
    loaded = await site.conversations.load(approval, visitor.person)
    preview = await load_preview(site.deps, loaded, visitor, f"/approvals/{approval}/preview", limit=None)
    if preview is None:
        raise NotFound(f"request `{approval}` has no preview for you")
    effect, back = loaded.request.card.effect, f"/approvals/{approval}"
    context: dict[str, Any] = {"preview": preview, "effect": effect, "back": back}
    return site.renderer.page("preview.html", visitor, nav="waiting", **context)


@router.get("/approvals/{approval}/preview/{number}", dependencies=[PAGE_READ])
async def show_image(approval: str, number: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Return one picture of the preview."""
    own_approval(visitor, approval)
    loaded = await site.conversations.load(approval, visitor.person)
    return picture_response(await load_image(site.deps, loaded, visitor, number))


@router.post("/approvals/{approval}/values", dependencies=[PAGE_DECIDE])
async def read_values(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Record a page of values as read. An approver of a card that is not whole reads all pages first."""
    own_approval(visitor, approval)
    loaded = await site.conversations.load(approval, visitor.person)
    following = await read_page(site.deps, loaded, visitor, visitor, request)
    card = f"/approvals/{approval}"
    return RedirectResponse(f"{card}/values{following}" if following else f"{card}#decide", status_code=303)


@router.post("/approvals/{approval}/decide", dependencies=[PAGE_DECIDE])
async def decide_card(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Decide by the form of a card. Accepts only the form of a page that this visitor opened for this request."""
    own_approval(visitor, approval)
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    language = visitor.formatter.language
    verdict = verdict_in(form)
    if not visitor.opened(form.get("token", ""), f"decide {approval}"):
        return await _card_page(site, visitor, approval, note=text("note.out_of_date", language), status=403)
    if verdict is None:
        return await _card_page(site, visitor, approval, note=text("note.no_verdict", language), status=422)
    try:
        draft = draft_in(form, approval, verdict, language)
    except BadRequest as error:
        return await _card_page(site, visitor, approval, note=error.message, status=422)
    if verdict == "approved" and (note := await _typing_note(site, visitor, draft)):
        return await _card_page(site, visitor, approval, note=note, status=422)
    receipt = await DecisionService(site.deps).decide(draft, author_of(visitor))
    return await _answer(site, visitor, approval, receipt)


@router.post("/approvals/{approval}/withdraw", dependencies=[PAGE_DECIDE])
async def withdraw_card(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Withdraw the request, for its requester or an operator."""
    own_approval(visitor, approval)
    form = await read_form(request)
    if not visitor.opened(str(form.get("token", "")), f"withdraw {approval}"):
        note = text("note.out_of_date", visitor.formatter.language)
        return await _card_page(site, visitor, approval, note=note, status=403)
    receipt = await DecisionService(site.deps).withdraw(approval, visitor.person, "")
    return await _answer(site, visitor, approval, receipt)


@router.post("/approvals/{approval}/assign", dependencies=[PAGE_DECIDE])
async def assign_card(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Hand the request on, or add an approver."""
    own_approval(visitor, approval)
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    language = visitor.formatter.language
    if not visitor.opened(form.get("token", ""), f"assign {approval}"):
        return await _card_page(site, visitor, approval, note=text("note.out_of_date", language), status=403)
    wish = assignment_in(form)
    if wish is None:
        return await _card_page(site, visitor, approval, note=text("card.assign.nobody", language), status=422)
    try:
        passkey = passkey_in(form)
    except BadRequest as error:
        return await _card_page(site, visitor, approval, note=error.message, status=422)
    receipt = await DecisionService(site.deps).assign(approval, *wish, author_of(visitor), passkey)
    return await _answer(site, visitor, approval, receipt)


@router.post("/approvals/{approval}/take", dependencies=[PAGE_DECIDE])
async def take_card(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Take the request, or give it back. It stays open to all who may decide it."""
    own_approval(visitor, approval)
    form = await read_form(request)
    language = visitor.formatter.language
    if not visitor.opened(str(form.get("token", "")), f"take {approval}"):
        return await _card_page(site, visitor, approval, note=text("note.out_of_date", language), status=403)
    waiting = await site.conversations.request(approval, visitor.person)
    taker = RequestTaker(site.deps.store, site.deps.people, site.deps.clock)
    change = taker.release if form.get("act") == "release" else taker.take
    try:
        await change(waiting, visitor.person, INBOX)
    except Refused:
        return await _card_page(site, visitor, approval, note=text("room.refused", language), status=403)
    return RedirectResponse(f"/approvals/{approval}", status_code=303)


@router.post("/approvals/{approval}/undo", dependencies=[PAGE_DECIDE])
async def undo_card(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Undo the denial that the visitor has just made in this browser."""
    own_approval(visitor, approval)
    form = await read_form(request)
    if not visitor.opened(str(form.get("token", "")), f"undo {approval}"):
        note = text("note.out_of_date", visitor.formatter.language)
        return await _card_page(site, visitor, approval, note=note, status=403)
    receipt = await DecisionService(site.deps).undo_denial(approval, visitor.person, visitor.undo_mark)
    return await _answer(site, visitor, approval, receipt)


@router.post("/approvals/{approval}/ask", dependencies=[PAGE_DECIDE])
async def ask_agent(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Ask the agent about its request."""
    own_approval(visitor, approval)
    form = await read_form(request)
    if not visitor.opened(str(form.get("token", "")), f"ask {approval}"):
        note = text("note.out_of_date", visitor.formatter.language)
        return await _card_page(site, visitor, approval, note=note, status=403)
    words = str(form.get("question", "")).replace("\r\n", "\n")
    receipt = await QuestionService(site.deps).ask(approval, visitor.person, words, INBOX, visitor.assurance)
    if receipt.status == "accepted":
        return RedirectResponse(f"/approvals/{approval}#ask-title", status_code=303)
    return await _answer(site, visitor, approval, receipt)


@router.get("/live/waiting", dependencies=[PAGE_READ])
async def follow_waiting(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Send an event `waiting` when the list changes. The page then reloads the list."""
    entries, tenant = site.deps.rights(visitor.person), visitor.person.tenant
    stream = site.live.follow(f"waiting {tenant} {entries}", lambda: _looks(site, tenant, entries))
    return stream_events(request, stream)


async def _looks(site: Site, tenant: str, approvers: Sequence[str]) -> AsyncGenerator[str, None]:
    last: list[str] | None = None
    while True:
        try:
            cards = await site.deps.requests.list_waiting(tenant, approvers=approvers, limit=LISTED)
            cards = await add_holders(site.deps, tenant, cards)
        except SignoffError:
            return
        now = [
            f"{card.id}/{card.revision}/{card.reminded}/{card.escalated}/{card.answered_by}/{card.expires_at}/{_holding(card)}"
            for card in cards
        ]
        if now != last:
            # The page reloads its list at once.
            site.deps.lists.forget()
            yield event("waiting", {"version": _version(cards)})
            last = now
        await asyncio.sleep(LOOK_SECONDS)


async def _typing_note(site: Site, visitor: Visitor, draft: DecisionDraft) -> str:
    try:
        return typing_note(await site.conversations.request(draft.approval_id, visitor.person), draft, visitor)
    # If the visitor may no longer read it, the decision refuses and records that.
    except NotFound:
        return ""


async def _answer(site: Site, visitor: Visitor, approval: str, receipt: Receipt) -> Response:
    if receipt.status in ("accepted", "counted"):
        response = RedirectResponse(f"/approvals/{approval}", status_code=303)
        site.visitors.remember(visitor, response)
        return response
    status = receipt_status(receipt)
    note = receipt_words(receipt, visitor.formatter)
    try:
        return await _card_page(site, visitor, approval, note=note, status=status, refused=receipt.status != "pending")
    except (ServerUnavailable, NotFound):
        return site.renderer.page("receipt.html", visitor, status=status, nav="waiting", note=note, receipt=receipt)


async def _card_page(
    site: Site,
    visitor: Visitor,
    approval: str,
    *,
    note: str = "",
    status: int = 200,
    refused: bool = True,
) -> Response:
    rows, card = await asyncio.gather(
        _rows(site, visitor, PAGE), open_card(site.deps, approval, visitor, quotes=True, compares=True)
    )
    context = {
        **_list(site, rows, visitor, WaitingFilter(), approval, rows),
        **_card_context(card, visitor, rows),
        "note": note,
        "refused": refused,
    }
    return site.renderer.page("approval.html", visitor, status=status, nav="waiting", **context)


def _card_context(card: CardPage, visitor: Visitor, rows: Sequence[InboxRow]) -> dict[str, Any]:
    request = card.request
    following = (row.card for row in rows if not row.answered and row.card.id != request.id)
    key = parse_approval_id(request.id)
    return {
        "card": card,
        "note": "",
        "refused": True,
        "token": visitor.token(f"decide {request.id}"),
        "action": f"/approvals/{request.id}/decide",
        "values": f"/approvals/{request.id}/values",
        "preview": f"/approvals/{request.id}/preview",
        "verbs": verbs_of(request),
        "following": next(following, None) if card.own_verdict or card.ending else None,
        "by_link": False,
        "spans": tuple(SPANS),
        "uses": USES,
        "withdraw_token": visitor.token(f"withdraw {request.id}"),
        "assign_token": visitor.token(f"assign {request.id}"),
        "take_token": visitor.token(f"take {request.id}"),
        "undo_token": visitor.token(f"undo {request.id}"),
        "ask_token": visitor.token(f"ask {request.id}"),
        # Makes repeats of one form count once.
        "delivery": secrets.token_hex(16),
        "talk": ".".join(key.turn) if key is not None else "",
    }


async def _rows(site: Site, visitor: Visitor, limit: int, choice: WaitingFilter | None = None) -> list[InboxRow]:
    """Return at most `limit` rows and one more. Without `choice`, all rows match."""
    person, formatter = visitor.person, visitor.formatter
    entries = site.deps.rights(person)
    cards = await site.deps.lists.share(
        person,
        (),
        ("page waiting", entries, limit, choice),
        lambda: site.deps.requests.list_waiting(
            person.tenant, approvers=entries, wanted=choice.matches if choice else None, limit=limit + 1
        ),
    )
    # Behind the shared list: a person's act must show at once.
    cards = await add_holders(site.deps, person.tenant, cards)
    together = {tool: _together(site, tool) for tool in {card.tool for card in cards}}
    return [
        InboxRow(
            card=card,
            requester=display_name(site.deps.people, card.requester, person.tenant),
            amount=amount_words(card, formatter),
            due=formatter.moment(card.expires_at) if card.expires_at else None,
            due_in=formatter.until(card.expires_at) if card.expires_at else "",
            soon=formatter.is_soon(card.expires_at) if card.expires_at else False,
            together=card.kind == "approval" and together[card.tool],
            answered=person.id in card.answered_by,
            taken=_holder_words(card, site, formatter),
        )
        for card in cards
    ]


def _holder_words(card: WaitingCard, site: Site, formatter: Formatter) -> str:
    if card.taken_until is None:
        return ""
    who = display_name(site.deps.people, card.taken_by, card.tenant)
    return formatter.text("row.taken", who=who, when=formatter.time(card.taken_until))


def _together(site: Site, tool: str) -> bool:
    """Only the tool and its policy count here. The batch page also checks the request."""
    catalog = site.deps.catalog
    tools = catalog.tools_named(tool)
    policies = [policy for each in tools if (policy := catalog.policy(each.activity).policy)]
    return all(each.preview is None for each in tools) and all(
        each.confirm == "" and not each.preview_required and not at_least(each.min_assurance, "mfa")
        for each in policies
    )


def _list(
    site: Site,
    found: Sequence[InboxRow],
    visitor: Visitor,
    choice: WaitingFilter,
    selected: str,
    matching: Sequence[InboxRow],
) -> dict[str, Any]:
    """`found` are the first waiting requests, `matching` the first that match the filters except for amounts."""
    rows = found[: choice.limit]
    shown = [row for row in matching[: choice.limit] if passes(row.card, choice)]
    needed = [row for row in shown if not row.answered]
    titles = {tool.name: tool.title or tool.name for tool in site.deps.catalog.every_tool if not tool.undeclared}
    return {
        "rows": shown,
        "needed": needed,
        "others": [row for row in shown if row.answered],
        "count": sum(not row.answered for row in rows),
        "full": len(found) > len(rows),
        "cut": len(matching) > choice.limit,
        "limit": choice.limit,
        "listed": LISTED,
        "several": sum(row.together for row in needed) > 1,
        "groups": group_rows(needed, titles, visitor.formatter, MOST) if choice.several else (),
        "choice": choice,
        "selected": selected,
        "version": _version([row.card for row in rows]),
        "actors": sorted(site.deps.catalog.actors),
        "tools": list(titles.items()),
        "teams": visitor.person.roles,
        "requesters": sorted({(row.requester, row.card.requester) for row in rows}),
        "first_run": None if rows else first_run(site.deps, visitor.person),
        "sample_token": visitor.token("new"),
        "sample_id": new_id(site.deps),
    }


def _version(cards: Sequence[WaitingCard]) -> str:
    """Return a mark that changes with the list. It is short for long lists, too."""
    states = "-".join(
        f"{card.code}{card.revision}{card.reminded}{card.escalated:d}{len(card.answered_by)}{_due(card)}{_holding(card)}"
        for card in cards
    )
    return hashlib.sha256(states.encode()).hexdigest()[:20]


def _due(card: WaitingCard) -> str:
    return f"{card.expires_at.timestamp():.0f}" if card.expires_at else ""


def _holding(card: WaitingCard) -> str:
    return f"{card.taken_by}{card.taken_until.timestamp():.0f}" if card.taken_until else ""
