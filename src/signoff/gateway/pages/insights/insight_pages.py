"""Serves the pages of figures and of a request's course."""

import logging
from collections import Counter
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.audit.log import AuditLog
from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import FIGURES_BY_DAY, FIGURES_PAST
from signoff.contracts.responses import Insights
from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.insights.back_test import BACK_TEST_DAYS, BackTest
from signoff.gateway.insights.course import course_of
from signoff.gateway.insights.insight_reader import DAYS, InsightReader
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.insights.insight_view import (
    busiest_day,
    channel_names,
    course_row,
    coverage_rows,
    day_columns,
    rate_rows,
    share_rows,
    verdict_rows,
)
from signoff.gateway.read_access import reads_all
from signoff.languages.catalogue import text
from signoff.store.delivery_queue import DeliveryQueue
from signoff.texts.insight_words import decided_change, time_change, warning_words

_DEFAULT_DAYS: Final = 30
_BACK_TEST: Final = "back-test"
_log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)


@router.api_route("/insights", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_insights(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the visitor's figures, as bars and tables."""
    recent = site.deps.back_tests.recent(visitor.person.tenant)
    return await _page(site, visitor, _days(request.query_params.get("days", "")), recent)


@router.post("/insights/back-test", dependencies=[PAGE_READ])
async def start_back_test(request: Request, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Run a back-test."""
    form, language = await read_form(request), visitor.formatter.language
    days = _days(str(form.get("days", "")))
    if not reads_all(visitor.person, development=site.deps.development):
        raise NotFound("there is no such page")
    if not visitor.opened(str(form.get("token", "")), _BACK_TEST):
        return await _page(site, visitor, days, None, note=text("note.out_of_date", language), status=403)
    try:
        found = await site.deps.back_tests.run(visitor.person.tenant)
    except (SignoffError, TimeoutError) as error:
        _log.warning("a back-test failed: %s", type(error).__name__)
        return await _page(site, visitor, days, None, note=text("insights.back_test_failed", language), status=503)
    if not found.finished:
        # It is not kept for later requests.
        note = text("insights.back_test_failed", language)
        return await _page(site, visitor, days, found if found.turns else None, note=note)
    return RedirectResponse(f"/insights?days={days}#back-test", status_code=303)


async def _page(
    site: Site, visitor: Visitor, days: int, back_test: BackTest | None, *, note: str = "", status: int = 200
) -> Response:
    reader = InsightReader(site.deps, visitor.person.tenant, visitor.person)
    formatter = visitor.formatter
    what, zone = ("page insights", days, str(formatter.zone)), formatter.zone
    found = await site.deps.lists.share(visitor.person, (), what, lambda: reader.read(days, zone))
    titles = _tool_titles(site)
    people = {each.name: display_name(site.deps.people, each.name, visitor.person.tenant) for each in found.by_person}
    rates = (
        ("tool", rate_rows(found.by_tool, titles)),
        ("rule", rate_rows(found.by_rule, {})),
        ("person", rate_rows(found.by_person, people)),
    )
    ages = {each.name: formatter.text(f"insights.age.{each.name}") for each in found.waiting.by_age}
    approvers = {each.name: each.name.partition(":")[2] for each in found.waiting.by_approver}
    shares = (
        ("by_age", share_rows(found.waiting.by_age, ages)),
        ("by_approver", share_rows(found.waiting.by_approver, approvers)),
        ("by_channel", share_rows(found.by_channel, channel_names(found, formatter.language), "accent")),
    )
    return site.renderer.page(
        "insights.html",
        visitor,
        status=status,
        nav="insights",
        found=found,
        changes=(decided_change(found, formatter), time_change(found, formatter)),
        columns=day_columns(found.by_day, formatter),
        busiest=busiest_day(found.by_day),
        limits=(FIGURES_PAST, FIGURES_BY_DAY),
        back_test=back_test,
        back_test_days=BACK_TEST_DAYS,
        note=note,
        token=visitor.token(_BACK_TEST),
        verdicts=[] if back_test is None else verdict_rows(back_test.tools, titles),
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
    cards = await DeliveryQueue(site.deps.store).of_request(request.id, replaced=True)
    steps = course_of(records, cards, request.id, request.call)
    rows = [
        course_row(
            step, display_name(site.deps.people, step.who, request.tenant) if step.who else "", visitor.formatter
        )
        for step in steps
    ]
    return site.renderer.page("course.html", visitor, nav="waiting", request=request, rows=rows)


def _days(written: str) -> int:
    return next((each for each in DAYS if str(each) == written), _DEFAULT_DAYS)


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
    titles = {tool.name: tool.title for tool in site.deps.catalog.every_tool if tool.title}
    found = Counter(titles.values())
    return {name: title for name, title in titles.items() if found[title] == 1}
