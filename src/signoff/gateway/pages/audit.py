"""Serves the page of the audit log: the entries of a turn or tenant, and whether they are intact."""

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter
from starlette.responses import Response

from signoff.audit.record import Record
from signoff.audit.stream_report import ReportFinding
from signoff.audit.timeline import TimelineEntry, is_claim, timeline
from signoff.contracts.ids import parse_workflow_id, turn_name
from signoff.formats.visible_text import whole_line
from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.read_access import read_record
from signoff.languages.catalogue import text
from signoff.texts.formatter import FormattedTime


@dataclass(frozen=True)
class _Row:
    """One entry: time, person and event in words, its raw text, and whether it is the broken one."""

    at: FormattedTime | None
    who: str
    what: str
    record: Record
    written: tuple[str, ...]
    broken: bool


router = APIRouter(include_in_schema=False)


@router.api_route("/audit/{name:path}", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_record(name: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show a timeline for readers of the audit log. Takes the same names as the API."""
    report = await read_record(site.deps, name, visitor.person.tenant, visitor.person)
    broken = report.finding.seq if report.finding is not None else -1
    turn = parse_workflow_id(report.stream)
    return site.renderer.page(
        "record.html",
        visitor,
        nav="turns" if turn is not None else "freeze",
        turn=turn_name(turn) if turn is not None else "",
        stream=report.stream,
        broken=finding_words(report.finding, visitor.formatter.language) if report.finding is not None else "",
        claims=any(map(is_claim, report.records)),
        rows=[
            _row(site, line, record, visitor, broken=record.seq == broken)
            for line, record in zip(timeline(report.records, visitor.formatter.language), report.records, strict=True)
        ],
    )


def finding_words(finding: ReportFinding, language: str) -> str:
    key = f"fault.{finding.fault}" if finding.seq else "fault.end"
    return text(key, language, n=str(finding.seq), stream=finding.stream)


def _row(site: Site, line: TimelineEntry, record: Record, visitor: Visitor, *, broken: bool) -> _Row:
    name = display_name(site.deps.people, record.subject, record.tenant) if record.subject else ""
    # Names may repeat and change; the id identifies the person.
    who = line.who if name == record.subject else f"{name} ({line.who})"
    written = tuple(map(whole_line, (f"{record.kind} {record.key}", record.data)))
    return _Row(_moment(record.at, visitor), who, line.what, record, written, broken)


def _moment(at: str, visitor: Visitor) -> FormattedTime | None:
    """`None` if a changed entry holds no valid time."""
    try:
        return visitor.formatter.moment(datetime.fromisoformat(at))
    except ValueError:
        return None
