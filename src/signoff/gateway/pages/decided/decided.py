"""Serves the page of past requests, with its search and export."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from signoff.contracts.errors import BadRequest
from signoff.contracts.responses import PastRequest
from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.history.past_export import stream_export
from signoff.gateway.history.past_reader import TEXT_CHARS, PastFilter, PastReader, Scope
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.languages.remarks import error_text
from signoff.texts.endings import where_words
from signoff.texts.formatter import FormattedTime
from signoff.texts.past_lines import ExportForm

LISTED: Final = 50
_SCOPES: Final[tuple[Scope, ...]] = ("all", "mine", "team")
_STATES: Final = ("approved", "denied", "answered", "timed_out", "cancelled", "lapsed", "happened")
_FIELDS: Final = ("text", "scope", "tool", "actor", "person", "state", "channel", "since", "until")


@dataclass(frozen=True)
class DecidedRow:
    """One request of the list."""

    past: PastRequest
    requester: str
    decider: str
    where: str
    when: FormattedTime
    ago: str


router = APIRouter(include_in_schema=False)


@router.api_route("/decided", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_decided(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the requests that the visitor may read, newest first."""
    query = {name: request.query_params.get(name, "")[:TEXT_CHARS] for name in _FIELDS}
    note, status, rows, found = "", 200, list[DecidedRow](), None
    try:
        chosen, after = _chosen(query, visitor), request.query_params.get("after", "")
        reader = _reader(site, visitor)
        found = await site.deps.lists.limited(
            visitor.person, lambda: reader.find(chosen, own=visitor.person, after=after, limit=LISTED)
        )
        rows = [_row(site, visitor, each) for each in found.decisions]
    except BadRequest as error:
        note, status = error_text(error, visitor.formatter.language), error.status
    kept = {name: value for name, value in query.items() if value}
    context: dict[str, Any] = {
        "rows": rows,
        "found": found,
        "note": note,
        "chosen": query,
        "filtered": bool(kept),
        "following": urlencode({**kept, "after": found.next}) if found is not None and found.next else "",
        "kept": urlencode(kept),
        "scopes": _SCOPES,
        "states": _STATES,
        "channels": sorted({"inbox", "api", "cli", "link", *site.deps.catalog.channels.declared}),
        "actors": sorted(site.deps.catalog.actors),
        "tools": list(dict.fromkeys((tool.name, tool.title or tool.name) for tool in site.deps.catalog.every_tool)),
    }
    return site.renderer.page("decided.html", visitor, status=status, nav="decided", **context)


@router.get("/decided/export", dependencies=[PAGE_READ])
async def export_decided(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Export the requests that match the filters."""
    query = {name: request.query_params.get(name, "")[:TEXT_CHARS] for name in _FIELDS}
    form: ExportForm = "csv" if request.query_params.get("format") == "csv" else "jsonl"
    return await stream_export(_reader(site, visitor), _chosen(query, visitor), form, own=visitor.person)


def _reader(site: Site, visitor: Visitor) -> PastReader:
    return PastReader(site.deps, visitor.person.tenant, visitor.person)


def _chosen(query: dict[str, str], visitor: Visitor) -> PastFilter:
    scope: Scope = next((each for each in _SCOPES if each == query["scope"]), "all")
    return PastFilter(
        text=query["text"],
        scope=scope,
        tool=query["tool"],
        actor=query["actor"],
        person=query["person"].strip(),
        state=query["state"],
        channel=query["channel"],
        since=_start_of(query["since"], 0, visitor),
        until=_start_of(query["until"], 1, visitor),
    )


def _start_of(written: str, later: int, visitor: Visitor) -> datetime | None:
    """Return when the day `later` days after it begins by the visitor's clock, or `None` for a text that is no day."""
    try:
        # A day may have 23 or 25 hours.
        day = datetime.strptime(written, "%Y-%m-%d") + timedelta(days=later)
        return day.replace(tzinfo=visitor.formatter.zone).astimezone(UTC)
    # A browser without a date field sends free text.
    except (ValueError, OverflowError):
        return None


def _row(site: Site, visitor: Visitor, past: PastRequest) -> DecidedRow:
    tenant, language = visitor.person.tenant, visitor.formatter.language
    by = past.decided_by and (past.decided_name or display_name(site.deps.people, past.decided_by, tenant))
    return DecidedRow(
        past=past,
        requester=display_name(site.deps.people, past.requester, tenant),
        decider=by,
        where=where_words(past.channel, language) if past.channel else "",
        when=visitor.formatter.moment(past.over_at),
        ago=visitor.formatter.ago(past.over_at),
    )
