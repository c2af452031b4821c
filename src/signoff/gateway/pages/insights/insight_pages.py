"""Serves the pages of figures and of a request's course."""

from collections import Counter
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from signoff.audit.log import AuditLog
from signoff.contracts.ids import TurnKey
from signoff.contracts.responses import Insights
from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.insights.course import course_of
from signoff.gateway.insights.insight_reader import DAYS, InsightReader
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.insights.insight_view import channel_names, course_row, coverage_rows, rate_rows, share_rows
from signoff.store.delivery_queue import DeliveryQueue
from signoff.texts.insight_words import warning_words

_DEFAULT_DAYS: Final = 30

router = APIRouter(include_in_schema=False)


@router.api_route("/insights", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_insights(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the visitor's figures, as bars and tables."""
    days = next((each for each in DAYS if str(each) == request.query_params.get("days")), _DEFAULT_DAYS)
    reader = InsightReader(site.deps, visitor.person.tenant, visitor.person)
    found = await site.deps.lists.share(visitor.person, (), ("page insights", days), lambda: reader.read(days))
    text, titles = visitor.formatter.text, _tool_titles(site)
    people = {each.name: display_name(site.deps.people, each.name, visitor.person.tenant) for each in found.by_person}
    rates = (
        ("tool", rate_rows(found.by_tool, titles)),
        ("rule", rate_rows(found.by_rule, {})),
        ("person", rate_rows(found.by_person, people)),
    )
    ages = {each.name: text(f"insights.age.{each.name}") for each in found.waiting.by_age}
    approvers = {each.name: each.name.partition(":")[2] for each in found.waiting.by_approver}
    shares = (
        ("by_age", share_rows(found.waiting.by_age, ages)),
        ("by_approver", share_rows(found.waiting.by_approver, approvers)),
        ("by_channel", share_rows(found.by_channel, channel_names(found, visitor.formatter.language), "accent")),
    )
    return site.renderer.page(
        "insights.html",
        visitor,
        nav="insights",
        found=found,
        spans=DAYS,
        rates=[(kind, rows) for kind, rows in rates if rows],
        shares=[(kind, rows) for kind, rows in shares if any(row.count for row in rows)],
        warnings=_warnings(site, visitor, found),
        entries=list(dict.fromkeys(each.name for row in found.coverage for each in row.approvers)),
        coverage=coverage_rows(found.coverage),
        others_hidden=found.every and not site.deps.catalog.insights_by_person,
    )


@router.api_route("/approvals/{approval}/course", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_course(approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the life of a request to its readers."""
    request = await site.conversations.request(approval, visitor.person)
    stream = TurnKey(request.tenant, request.session, request.turn).workflow_id
    records = await AuditLog(site.deps.store).stream(stream)
    cards = await DeliveryQueue(site.deps.store).of_request(request.id)
    steps = course_of(records, cards, request.id, request.call)
    rows = [
        course_row(
            step, display_name(site.deps.people, step.who, request.tenant) if step.who else "", visitor.formatter
        )
        for step in steps
    ]
    return site.renderer.page("course.html", visitor, nav="waiting", request=request, rows=rows)


def _warnings(site: Site, visitor: Visitor, found: Insights) -> list[str]:
    titles = _tool_titles(site)
    return [
        warning_words(
            each,
            titles.get(each.tool, each.tool)
            if each.tool
            else display_name(site.deps.people, each.person, visitor.person.tenant),
            visitor.formatter,
        )
        for each in found.warnings
    ]


def _tool_titles(site: Site) -> dict[str, str]:
    """Leaves out titles of several tools."""
    titles = {tool.name: tool.title for tool in site.deps.catalog.every_tool if tool.title}
    found = Counter(titles.values())
    return {name: title for name, title in titles.items() if found[title] == 1}
