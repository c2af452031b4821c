"""Serves the page on which people switch notifications on and off, and opens the cards of notifications."""

from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from signoff.approvals.audit_events import SHORT, admin_entry
from signoff.audit.log import entry_writer
from signoff.channels.channel_loader import open_channels
from signoff.contracts.audit import AuditEntry
from signoff.contracts.errors import NotFound
from signoff.contracts.limits import BROWSERS_OF_ONE
from signoff.contracts.person import PushSubscription
from signoff.contracts.requests import DecisionDraft
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.auth.dependencies import PAGE_CONTROL, PAGE_DECIDE, PAGE_READ
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import receipt_status
from signoff.gateway.pages.decision_form import author_of
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.renderer import PUSH
from signoff.languages.catalogue import text
from signoff.plugins.loader import Plugins
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow
from signoff.store.messages.push_subscriptions import PushSubscriptions

if TYPE_CHECKING:
    from signoff.channels.push.push import Push

_PURPOSE: Final = "notifications"
router = APIRouter(include_in_schema=False)


@router.api_route("/notifications", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_notifications(site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """List the visitor's browsers with notifications."""
    return await _page(site, visitor)


@router.post("/notifications", dependencies=[PAGE_CONTROL])
async def switch_notifications(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Add this browser, or remove one of the visitor's."""
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    language = visitor.formatter.language
    if not visitor.opened(form.get("token", ""), _PURPOSE):
        return await _page(site, visitor, note=text("note.out_of_date", language), status=403)
    if "off" in form:
        await _remove(site.deps, visitor, form["off"])
    elif not await _add(site.deps, visitor, form):
        note = text("notifications.bad", language, n=BROWSERS_OF_ONE)
        return await _page(site, visitor, note=note, status=422)
    return RedirectResponse("/notifications", status_code=303)


@router.api_route("/cards/{token}", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def open_card(token: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Lead the recipient of a notification to its request."""
    row = await _own_row(site, visitor, token)
    return RedirectResponse(f"/approvals/{quote(row.approval, safe='')}", status_code=303)


@router.get("/cards/{token}/deny", dependencies=[PAGE_READ])
async def open_denial(token: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Return the form for a denial by the notification's button."""
    await _own_row(site, visitor, token)
    return JSONResponse({"token": visitor.token(f"deny {token}")})


@router.post("/cards/{token}/deny", dependencies=[PAGE_DECIDE])
async def deny_card(request: Request, token: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Deny the revision that the notification announced. All rules of the page's own denial hold."""
    row = await _own_row(site, visitor, token)
    if not visitor.opened(str((await read_form(request)).get("token", "")), f"deny {token}"):
        return Response(status_code=403)
    # A denial of the other kind would give up a call that may have run.
    if row.request.kind != "approval":
        return Response(status_code=409)
    draft = DecisionDraft(
        approval_id=row.approval,
        verdict="denied",
        revision=row.revision,
        question_hash=row.request.question_hash,
    )
    receipt = await DecisionService(site.deps).decide(draft, author_of(visitor))
    return Response(status_code=receipt_status(receipt))


async def _own_row(site: Site, visitor: Visitor, token: str) -> DeliveryRow:
    row = await DeliveryQueue(site.deps.store).by_token(token)
    if row is None or (row.tenant, row.person) != (visitor.person.tenant, visitor.person.id):
        raise NotFound("there is no such card")
    return row


async def _add(deps: GatewayDeps, visitor: Visitor, form: dict[str, str]) -> bool:
    """Return False for a browser that this installation cannot notify, and above the limit."""
    push, person = await _open_push(deps), visitor.person
    try:
        subscription = PushSubscription(
            endpoint=form.get("endpoint", ""), p256dh=form.get("p256dh", ""), auth=form.get("auth", "")
        )
    except ValidationError:
        return False
    if push is None or push.problem(subscription):
        return False
    also = entry_writer([_entry(deps, visitor, "notifications on", subscription.id)])
    return await PushSubscriptions(deps.store).add(person.tenant, person.id, push.public_key, subscription, also)


async def _remove(deps: GatewayDeps, visitor: Visitor, name: str) -> None:
    """Ignores a browser that the visitor has removed in another window."""
    also = entry_writer([_entry(deps, visitor, "notifications off", name)])
    await PushSubscriptions(deps.store).remove(visitor.person.tenant, visitor.person.id, name, also)


def _entry(deps: GatewayDeps, visitor: Visitor, act: str, name: str) -> AuditEntry:
    person, browser = visitor.person, name[:SHORT]
    return admin_entry(person.tenant, act, person.id, deps.clock(), channel="inbox", browser=browser)


async def _open_push(deps: GatewayDeps) -> "Push | None":
    """Return the first channel of the kind `push`. `None` if there is none, or if it does not work."""
    declared = next((each for each in deps.catalog.channels.declared.values() if each.kind == PUSH), None)
    if declared is None:
        return None
    opened, _ = await open_channels(
        [declared],
        deps.store,
        public_url=deps.settings.public_url,
        clock=deps.clock,
        secrets=deps.secrets,
        plugins=Plugins(deps.settings.plugins),
    )
    return cast("Push | None", opened.get(declared.name))


async def _page(site: Site, visitor: Visitor, *, note: str = "", status: int = 200) -> Response:
    push, person = await _open_push(site.deps), visitor.person
    known = (
        []
        if push is None
        else await PushSubscriptions(site.deps.store).list_known(person.tenant, person.id, push.public_key)
    )
    context: dict[str, Any] = {
        "key": "" if push is None else push.public_key,
        "browsers": [(each.subscription.id, visitor.formatter.moment(each.added_at)) for each in known],
        "note": note,
        "token": visitor.token(_PURPOSE),
    }
    return site.renderer.page("notifications.html", visitor, status=status, nav="notifications", **context)
