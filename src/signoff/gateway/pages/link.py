"""Serves the page of an approval link. Opening it only shows the request; its form decides."""

import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.approvals.audit_events import link_entry
from signoff.contracts.decision import Assurance, Verdict
from signoff.contracts.errors import BadRequest, NotFound, Refused
from signoff.contracts.ids import parse_approval_id
from signoff.contracts.limits import LINK_SECONDS
from signoff.contracts.person import Person
from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, delivery_of, read_link
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.audit_writer import record
from signoff.gateway.auth.dependencies import OPEN_PAGE
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.errors import receipt_status
from signoff.gateway.pages.card_view import CardPage
from signoff.gateway.pages.decision_form import author_of, draft_in, typing_note
from signoff.gateway.pages.dependencies import CurrentSite, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.previews.preview_view import load_image, load_preview, picture_response
from signoff.gateway.pages.request_loader import open_card
from signoff.gateway.pages.value_view import read_page, show_page
from signoff.languages.catalogue import text
from signoff.texts.endings import receipt_words

ASSURANCE: Final[Assurance] = "link"
_BOTH: Final[tuple[Verdict, ...]] = ("approved", "denied")


@dataclass(frozen=True)
class OpenedLink:
    """An opened link: its contents, its text, and its recipient at this browser."""

    link: ApprovalLink
    written: str
    visitor: Visitor

    @property
    def purpose(self) -> str:
        """Binds the form to this link, and so to request, revision, recipient and verb."""
        return f"link {delivery_of(self.written)}"


router = APIRouter(include_in_schema=False)


@router.api_route("/link/{written}", methods=["GET", "HEAD"], dependencies=[OPEN_PAGE])
async def show_link(request: Request, written: str, site: CurrentSite) -> Response:
    """Show the request, with a form if the link suffices to decide it."""
    opened = await _open_link(site, request, written)
    link = opened.link
    seen = link_entry(link.approval, link.person, link.channel, site.deps.clock(), link=delivery_of(written))
    await record(site.deps.store, seen)
    return await _page(site, opened)


@router.post("/link/{written}", dependencies=[OPEN_PAGE])
async def decide_by_link(request: Request, written: str, site: CurrentSite) -> Response:
    """Decide with the form's token, which only the page has. Mail scanners and previews do not send it."""
    opened = await _open_link(site, request, written)
    link, visitor = opened.link, opened.visitor
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    language = visitor.formatter.language
    if not visitor.opened(form.get("token", ""), opened.purpose):
        return await _page(site, opened, note=text("note.out_of_date", language), status=403)
    verdict = next((each for each in _verbs(link) if each == form.get("verdict")), None)
    if verdict is None:
        return await _page(site, opened, note=text("note.no_verdict", language), status=422)
    card = await _card(site, opened)
    if card.request.state == "pending" and not card.decides:
        return await _page(site, opened, note=card.why_not, status=403)
    # Ignore other fields of a card's form: a link's page remembers no answers.
    plain = {name: form.get(name, "") for name in ("question_hash", "thread", "reason", "typed")}
    plain |= {"revision": str(link.revision), "delivery": delivery_of(written)}
    draft = draft_in(plain, link.approval, verdict, language)
    if verdict == "approved" and (note := typing_note(card.request, draft, visitor)):
        return await _page(site, opened, note=note, status=422)
    receipt = await DecisionService(site.deps).decide(draft, author_of(visitor, link.channel))
    if receipt.status in ("accepted", "counted"):
        return RedirectResponse(f"/link/{written}", status_code=303)
    return await _page(
        site,
        opened,
        note=receipt_words(receipt, visitor.formatter),
        status=receipt_status(receipt),
        bad=receipt.status == "refused",
    )


@router.get("/link/{written}/values", dependencies=[OPEN_PAGE])
async def show_link_values(request: Request, written: str, site: CurrentSite) -> Response:
    opened = await _open_link(site, request, written)
    await _card(site, opened)
    loaded = await site.deps.requests.load(opened.link.approval)
    context = await show_page(site.deps, loaded, opened.visitor, opened.visitor, request)
    browser = opened.visitor.browser
    return site.renderer.page("values.html", browser, nav="link", back=f"/link/{written}", **context)


@router.get("/link/{written}/preview", dependencies=[OPEN_PAGE])
async def show_link_preview(request: Request, written: str, site: CurrentSite) -> Response:
    """Show the whole preview to the link's recipient."""
    opened = await _open_link(site, request, written)
    await _card(site, opened)
    loaded, base = await site.deps.requests.load(opened.link.approval), f"/link/{written}"
    preview = await load_preview(site.deps, loaded, opened.visitor, f"{base}/preview", limit=None)
    if preview is None:
        raise NotFound("this request has no preview for you")
    context: dict[str, Any] = {"preview": preview, "effect": loaded.request.card.effect, "back": base}
    return site.renderer.page("preview.html", opened.visitor.browser, nav="link", **context)


@router.get("/link/{written}/preview/{number}", dependencies=[OPEN_PAGE])
async def show_link_image(request: Request, written: str, number: str, site: CurrentSite) -> Response:
    """Return one picture of the preview to the link's recipient."""
    opened = await _open_link(site, request, written)
    await _card(site, opened)
    loaded = await site.deps.requests.load(opened.link.approval)
    return picture_response(await load_image(site.deps, loaded, opened.visitor, number))


@router.post("/link/{written}/values", dependencies=[OPEN_PAGE])
async def read_link_values(request: Request, written: str, site: CurrentSite) -> Response:
    """Record a page of values as read by the link's recipient."""
    opened = await _open_link(site, request, written)
    await _card(site, opened)
    loaded = await site.deps.requests.load(opened.link.approval)
    following = await read_page(site.deps, loaded, opened.visitor, opened.visitor, request)
    page = f"/link/{written}"
    return RedirectResponse(f"{page}/values{following}" if following else f"{page}#decide", status_code=303)


async def _open_link(site: Site, request: Request, written: str) -> OpenedLink:
    key = await site.deps.store.secret_key(LINK_KEY)
    try:
        link = read_link(key, written, site.deps.clock())
    except Refused as error:
        site.deps.store.count_refusal("late" if error.code == "expired" else "forged")
        raise BadRequest(error.message, status=410 if error.code == "expired" else 404, code=error.code) from None
    person = _recipient(site, link)
    return OpenedLink(link, written, await site.visitors.visitor_as(request, person, ASSURANCE, signed_in=False))


def _recipient(site: Site, link: ApprovalLink) -> Person:
    named = parse_approval_id(link.approval)
    person = None if named is None else site.deps.people.find(link.person, named.turn.tenant)
    if person is None or not person.active:
        raise BadRequest("the recipient of this link is not in the directory", status=403)
    return person


async def _card(site: Site, opened: OpenedLink) -> CardPage:
    """The card has the form only for the revision that was sent, and not for an unknown outcome."""
    card = await open_card(site.deps, opened.link.approval, opened.visitor, f"/link/{opened.written}")
    _require_lately(site, card)
    language = opened.visitor.formatter.language
    if card.request.kind == "in_doubt":
        return dataclasses.replace(card, decides=False, why_not=text("link.doubt", language))
    if card.request.revision != opened.link.revision:
        return dataclasses.replace(card, decides=False, why_not=text("link.stale", language))
    return card


def _require_lately(site: Site, card: CardPage) -> None:
    """Raise `BadRequest` a day after the request's end: a link may stay in a mailbox for years."""
    ended = card.request.decided_at
    if ended is not None and site.deps.clock() >= ended + timedelta(seconds=LINK_SECONDS):
        site.deps.store.count_refusal("late")
        message = "the request of this link has ended; sign in to see it"
        raise BadRequest(message, status=410, code="expired")


async def _page(site: Site, opened: OpenedLink, *, note: str = "", status: int = 200, bad: bool = True) -> Response:
    link, visitor = opened.link, opened.visitor
    card = await _card(site, opened)
    context: dict[str, Any] = {
        "card": card,
        "note": note,
        "bad": bad,
        "person": visitor.person,
        "verbs": _verbs(link),
        "action": f"/link/{opened.written}",
        "values": f"/link/{opened.written}/values",
        "preview": f"/link/{opened.written}/preview",
        "by_link": True,
        "token": visitor.token(opened.purpose),
        "withdraw_token": "",
        "undo_token": "",
        "ask_token": "",
        "delivery": "",
        "talk": "",
    }
    # Render without the person: the recipient has not signed in, so the page's links must still ask for it.
    return site.renderer.page("link.html", visitor.browser, status=status, nav="link", **context)


def _verbs(link: ApprovalLink) -> tuple[Verdict, ...]:
    return _BOTH if not link.verb else (link.verb,)
