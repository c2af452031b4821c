"""Serves the pages of sessions: list them, start one, follow one live, send messages."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.ids import SessionKey, TurnKey, is_id, session_name, turn_name
from signoff.contracts.names import DEFAULT_ASKER
from signoff.contracts.requests import SayBody, sentence
from signoff.contracts.responses import SessionRow
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import TurnView
from signoff.gateway.auth.dependencies import PAGE_READ, PAGE_START
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.auth.streams import stream_events
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.errors import status_of
from signoff.gateway.live import event
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.first_run import first_run
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.session_view import session_talk, turns_in_full
from signoff.gateway.session_names import own_session
from signoff.gateway.turn_starter import new_id, read_session, say
from signoff.gateway.turn_watch import MOVING_SECONDS
from signoff.languages.catalogue import text

QUIET_SECONDS: Final = 3.0
"""Seconds between two looks at a session that does not work: only Temporal knows of its new messages."""
_LISTED: Final = 50


router = APIRouter(include_in_schema=False)


@router.api_route("/sessions", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def list_sessions(site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """List conversations and their pending requests."""
    person = visitor.person
    sessions = await site.deps.lists.share(
        person, (), ("page sessions",), lambda: site.conversations.sessions(person.tenant, person, _LISTED)
    )
    rows = [_listed_row(site, row, visitor) for row in sessions]
    return site.renderer.page("sessions.html", visitor, nav="turns", rows=rows, limit=_LISTED)


def _listed_row(site: Site, row: SessionRow, visitor: Visitor) -> dict[str, object]:
    formatter = visitor.formatter
    return {
        "row": row,
        "name": session_name(SessionKey(row.tenant, row.session)),
        "requester": display_name(site.deps.people, row.requester, row.tenant) if row.requester else "",
        "started": formatter.moment(row.started_at) if row.started_at else None,
        "ago": formatter.ago(row.started_at) if row.started_at else "",
    }


@router.api_route("/new", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_new(request: Request, site: CurrentSite) -> Response:
    return _form(site, await site.visitors.visitor(request))


@router.post("/sessions", dependencies=[PAGE_START])
async def begin_session(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Start a session from the form, then show it."""
    form = await _fields(request)
    note, status = _unsaid(visitor, form, "new")
    key = SessionKey(visitor.person.tenant, form.get("id", ""))
    if not note:
        key = _own_session(site, visitor, key)
        note, status = await _say(site, visitor, form, key)
    if note:
        return _form(site, visitor, form, note=note, status=status)
    return RedirectResponse(f"/sessions/{session_name(key)}", status_code=303)


@router.api_route("/sessions/{session}", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_session(request: Request, session: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    return await _talk(site, visitor, _own(visitor, session), part=request.query_params.get("part") == "thread")


@router.post("/sessions/{session}", dependencies=[PAGE_START])
async def say_more(request: Request, session: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Send another message."""
    key = _own(visitor, session)
    form = await _fields(request)
    note, status = _unsaid(visitor, form, f"say {session_name(key)}")
    if not note and _own_session(site, visitor, key) != key:
        # A reader who is not the owner. Strangers get "not found", as everywhere.
        await site.conversations.session(key, visitor.person)
        note, status = text("talk.not_yours", visitor.formatter.language), 403
    if not note:
        note, status = await _say(site, visitor, form, key)
    if note:
        return await _talk(site, visitor, key, note=note, status=status, words=form.get("text", ""))
    return RedirectResponse(f"/sessions/{session_name(key)}", status_code=303)


@router.post("/sessions/{session}/cancel", dependencies=[PAGE_START])
async def cancel_session(request: Request, session: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Stop all running turns of a session."""
    key = _own(visitor, session)
    form = await _fields(request)
    if not visitor.opened(form.get("token", ""), f"cancel {session_name(key)}"):
        note = text("note.out_of_date", visitor.formatter.language)
        return await _talk(site, visitor, key, note=note, status=403)
    await site.conversations.stop_session(key, visitor.person)
    return RedirectResponse(f"/sessions/{session_name(key)}", status_code=303)


@router.get("/live/sessions/{session}", dependencies=[PAGE_READ])
async def follow_session(request: Request, session: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Send an event `turn` when the page's contents change. A session has no end."""
    key = _own(visitor, session)
    await site.conversations.session(key, visitor.person)
    stream = site.live.follow(f"page {key.workflow_id}", lambda: _versions(site, key))
    return stream_events(request, stream, site.conversations.following(key))


def _own_session(site: Site, visitor: Visitor, key: SessionKey) -> SessionKey:
    return own_session(key, visitor.person, development=site.deps.development)


def _unsaid(visitor: Visitor, form: dict[str, str], purpose: str) -> tuple[str, int]:
    """Return the problem and the status; "" for a valid form."""
    language = visitor.formatter.language
    if not visitor.opened(form.get("token", ""), purpose):
        return text("new.out_of_date", language), 403
    if not form.get("text", "").strip() or not is_id(form.get("id", "")):
        return text("new.empty", language), 422
    return "", 200


async def _say(site: Site, visitor: Visitor, form: dict[str, str], key: SessionKey) -> tuple[str, int]:
    """Return the problem and the status. The form's `id` makes repeats count once."""
    try:
        body = SayBody(
            text=form["text"].replace("\r\n", "\n"),
            actor=form.get("actor") or None,
            user=visitor.person.id if visitor.signed_in else form.get("user") or DEFAULT_ASKER,
            id=form["id"],
        )
        await say(site.deps, body, key, channel="inbox")
    except ValidationError as error:
        return sentence(error.errors()), 422
    except SignoffError as error:
        return error.message, status_of(error)
    return "", 200


def _form(
    site: Site, visitor: Visitor, form: dict[str, str] | None = None, *, note: str = "", status: int = 200
) -> Response:
    fields = form or {}
    return site.renderer.page(
        "new.html",
        visitor,
        status=status,
        nav="new",
        note=note,
        token=visitor.token("new"),
        id=fields.get("id") or new_id(site.deps),
        actors=[each for each in site.deps.catalog.actors.values() if each.external is None],
        words=fields.get("text", ""),
        actor=fields.get("actor", ""),
        first_run=first_run(site.deps, visitor.person),
        user=fields.get("user", "") or _asker(site, visitor),
    )


async def _talk(
    site: Site,
    visitor: Visitor,
    key: SessionKey,
    *,
    part: bool = False,
    note: str = "",
    status: int = 200,
    words: str = "",
) -> Response:
    language = visitor.formatter.language
    view = await site.conversations.session(key, visitor.person)
    talk = await session_talk(site.deps, view, await turns_in_full(site.deps, view), language, visitor.person)
    first = next((entry.words for entry in talk.entries if entry.who == "person"), "")
    name = session_name(key)
    started = view.turns[0].started_at if view.turns else None
    return site.renderer.page(
        "_thread.html" if part else "session.html",
        visitor,
        status=status,
        nav="turns",
        talk=talk,
        title=" ".join(first.split())[:80] or text("talk.title", language),
        session=name,
        turns=[turn_name(TurnKey(view.tenant, view.session, turn.turn)) for turn in view.turns],
        actor=view.actor,
        user=view.owner or _asker(site, visitor),
        started=visitor.formatter.moment(started) if started else None,
        temporal=site.deps.temporal_link(key),
        id=new_id(site.deps),
        token=visitor.token(f"say {name}"),
        stop=visitor.token(f"cancel {name}"),
        may_stop=site.conversations.may_stop(visitor.person, site.conversations.of_session(key, visitor.person)),
        words=words,
        note=note,
    )


def _asker(site: Site, visitor: Visitor) -> str:
    """By default not the visitor: a requester could not approve the turn's calls."""
    others = [each.id for each in site.deps.people.all(visitor.person.tenant) if each.active]
    if DEFAULT_ASKER in others:
        return DEFAULT_ASKER
    return next((each for each in others if each != visitor.person.id), visitor.person.id)


async def _versions(site: Site, key: SessionKey) -> AsyncGenerator[str, None]:
    last: Any = None
    try:
        turns: list[TurnKey] = []
        while True:
            stamps = await site.deps.turn_watch.read(turns)
            view = await site.deps.session(key)
            shown = _facts(view, await turns_in_full(site.deps, view))
            if shown != last:
                last = shown
                yield event("turn", {"state": view.state, "calls": shown["calls"], "over": False})
            turns = [TurnKey(key.tenant, key.session, each.turn) for each in view.turns if each.state == "waiting"]
            with site.deps.turn_watch.follow(stamps) as follower:
                await follower.wait(MOVING_SECONDS if view.state == "running" else QUIET_SECONDS)
    except SignoffError:
        # The reader reconnects and then sees the current state.
        return


def _facts(view: SessionView, turns: dict[str, TurnView]) -> dict[str, Any]:
    calls = {
        call.approval.id: f"{call.approval.revision}-{call.approval.state}-{len(call.approval.votes)}-{call.state}"
        for turn in turns.values()
        for call in turn.calls
        if call.approval is not None
    }
    states = [(turn.turn, turn.state) for turn in view.turns]
    lengths = [(turn.turn, len(turn.messages), [call.state for call in turn.calls]) for turn in turns.values()]
    return {"calls": calls, "states": states, "lengths": lengths, "queued": len(view.queued)}


def _own(visitor: Visitor, session: str) -> SessionKey:
    key = read_session(session)
    if key.tenant != visitor.person.tenant:
        raise NotFound(f"there is no session `{session}`")
    return key


async def _fields(request: Request) -> dict[str, str]:
    return {name: str(value) for name, value in (await read_form(request)).items()}
