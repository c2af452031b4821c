"""Serves the pages of turns: follow one live, find an earlier one."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.ids import SessionKey, TurnKey, is_id, session_name, turn_name
from signoff.contracts.responses import TurnRow
from signoff.contracts.turn import TurnView
from signoff.gateway.auth.dependencies import PAGE_READ, PAGE_START
from signoff.gateway.auth.person_lookup import active_people, display_name
from signoff.gateway.auth.streams import stream_events
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.conversations import TurnFilter
from signoff.gateway.live import event
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.turn_view import message_words, talk_of
from signoff.gateway.read_access import of_turn
from signoff.gateway.turn_starter import read_turn
from signoff.languages.catalogue import text

LISTED: Final = 50
STATES: Final = (
    "running", "suspended", "complete", "clarifying", "awaiting", "delegated", "passed", "error", "cancelled",
    "terminated", "failed",
)  # fmt: skip
SINCE: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


router = APIRouter(include_in_schema=False)


@router.api_route("/turns/{turn}", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_turn(request: Request, turn: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    return await _talk(site, visitor, _own(site, visitor, turn), part=request.query_params.get("part") == "thread")


@router.post("/turns/{turn}/cancel", dependencies=[PAGE_START])
async def cancel_turn(request: Request, turn: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Stop a turn."""
    key = _own(site, visitor, turn)
    form = await read_form(request)
    if not visitor.opened(str(form.get("token", "")), f"cancel {turn_name(key)}"):
        note = text("note.out_of_date", visitor.formatter.language)
        return await _talk(site, visitor, key, note=note, status=403)
    await site.conversations.stop_turn(key, visitor.person)
    return RedirectResponse(f"/turns/{turn_name(key)}", status_code=303)


@router.get("/live/turns/{turn}", dependencies=[PAGE_READ])
async def follow_turn(request: Request, turn: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Send an event `turn` when the page's contents change. The last one says that the turn has ended."""
    key = _own(site, visitor, turn)
    await site.conversations.turn(key, visitor.person)
    stream = site.live.follow(f"page {key.workflow_id}", lambda: _versions(site, key))
    return stream_events(request, stream, site.conversations.following(key))


@router.api_route("/turns", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def list_turns(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """List earlier turns by state, actor, person and time."""
    query = request.query_params
    chosen = {name: query.get(name, "") for name in ("state", "actor", "person", "since")}
    formatter = visitor.formatter
    age = SINCE.get(chosen["since"])
    state = chosen["state"] if chosen["state"] in STATES else ""
    actor = chosen["actor"] if is_id(chosen["actor"]) else ""
    since = formatter.now - age if age is not None else None
    turns = TurnFilter(visitor.person.tenant, state, actor, since, chosen["person"])
    what = ("page turns", replace(turns, since=None), chosen["since"])
    turn_rows = await site.deps.lists.share(
        visitor.person, (), what, lambda: site.conversations.turns(visitor.person, turns, limit=LISTED)
    )
    rows = [
        {
            "row": row,
            "name": turn_name(_key(row)),
            "requester": display_name(site.deps.people, row.requester, row.tenant),
            "started": formatter.moment(row.started_at) if row.started_at else None,
            "ago": formatter.ago(row.started_at) if row.started_at else "",
        }
        for row in turn_rows
    ]
    return site.renderer.page(
        "turns.html",
        visitor,
        nav="turns",
        rows=rows,
        askers=_askers(site, visitor, turn_rows),
        chosen=chosen,
        filtered=any(chosen.values()),
        states=STATES,
        spans=tuple(SINCE),
        actors=sorted(site.deps.catalog.actors),
        limit=LISTED,
    )


def _askers(site: Site, visitor: Visitor, found: Sequence[TurnRow]) -> list[str]:
    """Return all people in development, else the ones in the visitor's rows."""
    if site.deps.development:
        return [person.id for person in active_people(site.deps.people, visitor.person.tenant)]
    # The rows name only people that the visitor may know of.
    people = {row.requester for row in found} | {visitor.person.id}
    return sorted(people - {""})


def _own(site: Site, visitor: Visitor, turn: str) -> TurnKey:
    key = read_turn(site.deps, turn, visitor.person, visitor.person.tenant)
    if key.tenant != visitor.person.tenant:
        raise NotFound(f"there is no turn `{turn}`")
    return key


async def _talk(
    site: Site, visitor: Visitor, key: TurnKey, *, part: bool = False, note: str = "", status: int = 200
) -> Response:
    view = await site.conversations.turn(key, visitor.person)
    session = SessionKey(key.tenant, key.session)
    talk = await talk_of(site.deps, view, visitor.formatter.language, visitor.person)
    first = next((entry.words for entry in talk.entries if entry.who == "person"), "")
    if not first and view.messages and view.messages[0].role == "user":
        # The summary of an external call, which no person wrote.
        first = await message_words(site.deps, view.messages[0], session)
    started = visitor.formatter.moment(view.started_at) if view.started_at else None
    return site.renderer.page(
        "_thread.html" if part else "talk.html",
        visitor,
        status=status,
        nav="turns",
        talk=talk,
        title=" ".join(first.split())[:80] or text("talk.title", visitor.formatter.language),
        view=view,
        turn=turn_name(key),
        session=session_name(session) if _shows_session(site, visitor, view, session) else "",
        requester=view.requester.name or view.requester.user,
        started=started,
        temporal=site.deps.temporal_link(key),
        token=visitor.token(f"cancel {turn_name(key)}"),
        may_stop=site.conversations.may_stop(visitor.person, of_turn(key.tenant, view.requester, ())),
        note=note,
    )


def _shows_session(site: Site, visitor: Visitor, view: TurnView, session: SessionKey) -> bool:
    return view.in_session and site.conversations.may_read_session(session, visitor.person)


async def _versions(site: Site, key: TurnKey) -> AsyncGenerator[str, None]:
    try:
        async for view in site.deps.watch(key):
            calls = {
                call.approval.id: f"{call.approval.revision}-{call.approval.state}-{len(call.approval.votes)}"
                f"-{call.outcome.code if call.outcome is not None else call.state}"
                for call in view.calls
                if call.approval is not None
            }
            yield event("turn", {"state": view.state, "calls": calls, "over": view.result is not None})
    except SignoffError:
        # The reader reconnects and then sees the current state.
        return


def _key(row: TurnRow) -> TurnKey:
    return TurnKey(row.tenant, row.session, row.turn)
