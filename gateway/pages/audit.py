"""The page of the record: what happened in a turn, or in the tenant beside its turns, and whether it still stands."""

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from signoff.audit.record import Record
from signoff.audit.stream_report import Line
from signoff.contracts.ids import parse_workflow_id
from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.deps import GatewayDeps, turn_name
from signoff.gateway.pages.renderer import Pages
from signoff.gateway.pages.visitor import Visitor, Visitors
from signoff.gateway.record_access import read_record
from signoff.texts.formatter import Moment


@dataclass(frozen=True)
class _Row:
    """One record: when, who and what in words; as it was written; and whether it is the one that does not hold."""

    at: Moment | None
    who: str
    what: str
    record: Record
    broken: bool


class RecordPages:
    """Handlers of `/audit/...`."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors, pages: Pages) -> None:
        self._deps = deps
        self._visitors = visitors
        self._pages = pages

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/audit/{name:path}", self.look, methods=["GET", "HEAD"], dependencies=[PAGE_READ])
        return router

    async def look(self, request: Request, name: str) -> Response:
        """A timeline, for those who may read the record; names as the API takes them."""
        visitor = await self._visitors.visitor(request)
        told = await read_record(self._deps, name, visitor.person.tenant, visitor.person)
        broken = told.finding.seq if told.finding is not None else -1
        turn = parse_workflow_id(told.stream)
        return self._pages.page(
            "record.html",
            visitor,
            nav="turns" if turn is not None else "freeze",
            turn=turn_name(turn) if turn is not None else "",
            stream=told.stream,
            finding=told.finding,
            rows=[
                self._row(line, record, visitor, broken=record.seq == broken)
                for line, record in zip(told.timeline, told.records, strict=True)
            ],
        )

    def _row(self, line: Line, record: Record, visitor: Visitor, *, broken: bool) -> _Row:
        name = display_name(self._deps.people, record.subject, record.tenant) if record.subject else ""
        # Names may repeat and change; who it was is the id.
        who = name if name == record.subject else f"{name} ({record.subject})"
        return _Row(_moment(record.at, visitor), who, line.what, record, broken)


def _moment(at: str, visitor: Visitor) -> Moment | None:
    """None for a time that somebody made something else of."""
    try:
        return visitor.formatter.moment(datetime.fromisoformat(at))
    except ValueError:
        return None
