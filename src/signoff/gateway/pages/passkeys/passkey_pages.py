"""Serves a person's own passkeys, and challenges for them. A script of the page talks to the authenticator."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from signoff.contracts.decision import PasskeyAssertion
from signoff.contracts.errors import BadRequest, NotFound, Refused
from signoff.contracts.requests import DecisionDraft
from signoff.contracts.responses import PasskeyOptions
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.auth.dependencies import PAGE_CONTROL, PAGE_DECIDE, PAGE_READ
from signoff.gateway.auth.passkey_registration import PasskeyRegistration
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.pages.answering.answer_page import answer_draft, read_answer
from signoff.gateway.pages.decision_form import assignment_in, author_of, draft_in, json_in, verdict_in
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.edit import edit_draft, form_purpose, read_typed
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.request_loader import open_request, own_approval
from signoff.languages.catalogue import text

_REGISTER = "passkeys"

router = APIRouter(include_in_schema=False)


@router.api_route("/passkeys", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_passkeys(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """List the visitor's own passkeys."""
    return await _page(request, site, visitor)


@router.post("/passkeys/begin", dependencies=[PAGE_CONTROL])
async def begin_registration(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Return the options of a registration to the page's script."""
    form = await _own_form(request, visitor)
    if isinstance(form, str):
        return _problem(form)
    try:
        return JSONResponse((await PasskeyRegistration(site.deps).begin(visitor.person))._asdict())
    except Refused as error:
        return _problem(error.message)


@router.post("/passkeys", dependencies=[PAGE_CONTROL])
async def finish_registration(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Add the passkey that the browser has created."""
    form = await _own_form(request, visitor)
    if isinstance(form, str):
        return await _page(request, site, visitor, note=form, status=403)
    try:
        created, sent = json_in(form, "created"), json_in(form, "earlier")
        earlier = None if sent is None else PasskeyAssertion.model_validate(sent)
        given = created if isinstance(created, dict) else {}
        await PasskeyRegistration(site.deps).finish(visitor.person, form.get("nonce", ""), given, earlier)
    except ValidationError:
        return await _page(request, site, visitor, note="`earlier`: no assertion of a passkey", status=422)
    except Refused as error:
        return await _page(request, site, visitor, note=error.message, status=422)
    return RedirectResponse("/passkeys", status_code=303)


@router.post("/approvals/{approval}/passkey", dependencies=[PAGE_DECIDE])
async def make_challenge(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Return a challenge for exactly the decision that the form will submit."""
    own_approval(visitor, approval)
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    try:
        options = await _challenge(site, visitor, approval, form)
    except (Refused, NotFound) as error:
        return _problem(error.message)
    return JSONResponse(options.model_dump(mode="json"))


async def _challenge(site: Site, visitor: Visitor, approval: str, form: Mapping[str, str]) -> PasskeyOptions:
    service, author = DecisionService(site.deps), author_of(visitor)
    if "to" not in form:
        return await service.make_challenge(await _draft(site, visitor, approval, form), author)
    wish, language = assignment_in(form), visitor.formatter.language
    if not visitor.opened(form.get("token", ""), f"assign {approval}"):
        raise BadRequest(text("note.out_of_date", language), status=403)
    if wish is None:
        raise BadRequest(text("card.assign.nobody", language))
    return await service.make_assignment_challenge(approval, *wish, author)


async def _draft(site: Site, visitor: Visitor, approval: str, form: Mapping[str, str]) -> DecisionDraft:
    """Read the form of a card, of an answer, or of the reviewed edit. Raises `BadRequest`."""
    language, purpose = visitor.formatter.language, f"decide {approval}"
    if form.get("verdict") == "answered":
        opened = await open_request(site.deps, approval, visitor)
        answer = read_answer(opened.request, form)
        if answer.good and visitor.opened(form.get("token", ""), form_purpose(opened.request, "answer")):
            return answer_draft(opened.request, answer, form, language)
    elif "step" not in form:
        verdict = verdict_in(form)
        if verdict is not None and visitor.opened(form.get("token", ""), purpose):
            return draft_in(form, approval, verdict, language)
    else:
        opened = await open_request(site.deps, approval, visitor)
        typed = read_typed(site, opened, form)
        if typed.good and visitor.opened(form.get("token", ""), form_purpose(opened.request, "edit")):
            return edit_draft(opened, typed, form, language)
    raise BadRequest(text("note.out_of_date", language), status=403)


async def _own_form(request: Request, visitor: Visitor) -> dict[str, str] | str:
    """Return why the visitor may not register with the form, in place of it."""
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    language = visitor.formatter.language
    if not visitor.opened(form.get("token", ""), _REGISTER):
        return text("note.out_of_date", language)
    return form if visitor.registers else text("passkeys.elsewhere", language)


async def _page(request: Request, site: Site, visitor: Visitor, *, note: str = "", status: int = 200) -> Response:
    registration = PasskeyRegistration(site.deps)
    known = await registration.list_of(visitor.person)
    here = urlsplit(registration.origin).netloc == request.headers.get("host", "")
    context: dict[str, Any] = {
        "added": [visitor.formatter.moment(each.passkey.added_at) for each in known],
        "elsewhere": "" if here else f"{registration.origin}/passkeys",
        "note": note,
        "token": visitor.token(_REGISTER),
    }
    return site.renderer.page("passkeys.html", visitor, status=status, nav="passkeys", **context)


def _problem(message: str) -> Response:
    return JSONResponse({"problem": message}, status_code=403)
