import dataclasses
from datetime import date, timedelta, timezone
from typing import Any

import httpx2
import pytest
from gateway_login import bearer
from gateway_rig import http_of
from history_rig import SECRET, HistoryRig, history_catalog

from signoff.contracts.responses import EarlierFigures
from signoff.gateway.app import build_app
from signoff.gateway.insights import insight_reader
from signoff.store.store import Store
from signoff.store.tokens import SCOPES, Tokens


@pytest.fixture
async def rig(store: Store) -> HistoryRig:
    rig = HistoryRig(store)
    await rig.decided({"amount": 20, "to": "Zoe", "pin": SECRET})
    await rig.decided({"amount": 30, "to": "Zoe"}, by="bo", verdict="denied")
    await rig.decided({"amount": 40, "to": "Zoe"}, tool="order", by="eve")
    await rig.index()
    await rig.asked({"amount": 50, "to": "Zoe"})
    await rig.asked({"amount": 60, "to": "Zoe"}, tool="gift")
    return rig


async def get(rig: HistoryRig, person: str, **params: Any) -> httpx2.Response:
    deps = rig.deps
    secret, _ = await Tokens(rig.store).create("main", person, SCOPES, lifetime=timedelta(days=1), now=deps.clock())
    async with http_of(build_app(deps)) as http:
        return await http.get("/v1/insights", params=params, headers=bearer(secret))


def rates(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {each["name"]: (each["approved"], each["denied"]) for each in rows}


async def test_auditor_reads_figures_of_all_requests_without_other_people(rig: HistoryRig) -> None:
    body = (await get(rig, "oz")).json()
    assert (body["days"], body["every"], body["more"]) == (30, True, False)
    assert (body["approved"], body["denied"], body["unanswered"]) == (2, 1, 0)
    assert rates(body["by_tool"]) == {"pay": (1, 1), "order": (1, 0)}
    assert rates(body["by_rule"]) == {"pay: requires_approval": (1, 1), "order: requires_approval": (1, 0)}
    assert body["by_person"] == []
    assert {each["name"]: each["count"] for each in body["by_channel"]} == {"inbox": 2, "slack": 1}
    assert body["waiting"]["count"] == 2
    assert {each["name"] for each in body["waiting"]["by_approver"]} == {"role:finance"}
    assert 0 <= body["p50"] <= body["p95"] < 60
    assert SECRET not in str(body)


async def test_other_people_are_named_only_if_the_manifest_permits_it(rig: HistoryRig) -> None:
    rig.catalog = dataclasses.replace(rig.catalog, insights_by_person=True)
    body = (await get(rig, "oz")).json()
    assert rates(body["by_person"]) == {"ana": (1, 0), "bo": (0, 1), "eve": (1, 0)}
    assert {each["name"] for each in body["waiting"]["by_approver"]} == {"role:finance", "user:eve"}
    own = (await get(rig, "ana")).json()
    assert rates(own["by_person"]) == {"ana": (1, 0)}


async def test_each_person_reads_their_own_figures_alone(rig: HistoryRig) -> None:
    for person, tools, waiting in (("ana", {"pay": (1, 0)}, 2), ("eve", {"order": (1, 0)}, 1), ("guest", {}, 0)):
        body = (await get(rig, person)).json()
        assert (body["every"], body["coverage"]) == (False, [])
        assert rates(body["by_tool"]) == tools
        assert set(rates(body["by_person"])) <= {person}
        assert body["waiting"]["count"] == waiting, person


async def test_own_figures_of_a_shared_request_do_not_name_the_other_approver(store: Store) -> None:
    rig = HistoryRig(store, catalog=history_catalog(quorum=2))
    request = await rig.decided({"amount": 20, "to": "Zoe"})
    await rig.answer(request, "bo")
    await rig.index()
    for by_person in (False, True):
        rig.catalog = dataclasses.replace(rig.catalog, insights_by_person=by_person)
        body = (await get(rig, "ana")).json()
        assert (rates(body["by_tool"]), body["by_person"]) == ({"pay": (1, 0)}, [])
    assert rates((await get(rig, "bo")).json()["by_person"]) == {"bo": (1, 0)}


async def test_figures_of_another_tenant_or_person_are_refused(rig: HistoryRig) -> None:
    assert (await get(rig, "oz", tenant="other")).status_code == 404
    assert (await get(rig, "ana", **{"as": "oz"})).status_code == 403
    assert (await get(rig, "oz", days=365)).status_code == 422
    async with http_of(build_app(rig.deps)) as http:
        assert (await http.get("/v1/insights")).status_code == 401


async def test_reader_without_rights_in_the_tenant_counts_nothing(rig: HistoryRig) -> None:
    gone = rig.catalog.people.find("gone")
    for person in (None, gone):
        found = await insight_reader.InsightReader(rig.deps, "main", person).read(30)
        assert (found.approved, found.waiting.count, found.every) == (0, 0, False)
    auditor = rig.catalog.people.find("oz")
    found = await insight_reader.InsightReader(rig.deps, "other", auditor).read(30)
    assert (found.approved, found.waiting.count, found.every) == (0, 0, False)


async def test_figures_of_each_day_add_up_to_the_numbers_by_outcome(rig: HistoryRig) -> None:
    for person, ended in (("oz", (2, 1)), ("ana", (1, 0)), ("guest", (0, 0))):
        body = (await get(rig, person, days=7)).json()
        days = [date.fromisoformat(each["day"]) for each in body["by_day"]]
        assert days == [days[-1] - timedelta(days=number) for number in range(6, -1, -1)]
        sums = tuple(sum(each[name] for each in body["by_day"]) for name in ("approved", "denied"))
        assert sums == (body["approved"], body["denied"]) == ended, person


async def test_figures_are_compared_with_the_same_time_before(rig: HistoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    auditor, now = rig.catalog.people.find("oz"), rig.deps.clock()
    later = dataclasses.replace(rig.deps, clock=lambda: now + timedelta(days=30))
    found = await insight_reader.InsightReader(later, "main", auditor).read(30)
    assert (found.approved, found.by_tool, found.p50) == (0, (), None)
    assert found.before is not None
    assert (found.before.approved, found.before.denied, found.before.unanswered) == (2, 1, 0)
    # So few decisions have no median that anyone compares.
    assert found.before.p50 is None
    monkeypatch.setattr(insight_reader, "FEW", 3)
    found = await insight_reader.InsightReader(later, "main", auditor).read(30)
    assert found.before is not None
    assert found.before.p50 is not None
    today = await insight_reader.InsightReader(rig.deps, "main", auditor).read(30)
    assert today.before == EarlierFigures()
    people = (rig.catalog.people.find("ana"), rig.catalog.people.find("guest"))
    own = [(await insight_reader.InsightReader(later, "main", each).read(30)).before for each in people]
    assert [each.approved for each in own if each is not None] == [1, 0]


async def test_requests_after_the_same_time_before_do_not_count(rig: HistoryRig) -> None:
    auditor, now = rig.catalog.people.find("oz"), rig.deps.clock()
    sooner = dataclasses.replace(rig.deps, clock=lambda: now + timedelta(days=30, hours=-1))
    # At noon, an hour earlier is on the same day.
    noon = timezone(timedelta(hours=12 - now.hour))
    found = await insight_reader.InsightReader(sooner, "main", auditor).read(30, noon)
    assert (found.approved, found.before) == (0, EarlierFigures())


async def test_time_before_alone_is_cut_without_a_mark_on_the_numbers(
    rig: HistoryRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    auditor, now = rig.catalog.people.find("oz"), rig.deps.clock()
    later = dataclasses.replace(rig.deps, clock=lambda: now + timedelta(days=30))
    monkeypatch.setattr(insight_reader, "FIGURES_BY_DAY", 1)
    found = await insight_reader.InsightReader(later, "main", auditor).read(30)
    assert (found.cut, found.before, len(found.by_day)) == (False, None, 30)


async def test_numbers_by_day_are_marked_if_they_are_cut(rig: HistoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insight_reader, "FIGURES_BY_DAY", 1)
    body = (await get(rig, "oz")).json()
    assert (body["approved"], body["denied"], body["cut"], body["before"]) == (1, 1, True, None)
    # Days before the oldest counted request would look empty.
    assert len(body["by_day"]) == 1


async def test_only_the_newest_requests_count(rig: HistoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insight_reader, "FIGURES_PAST", 2)
    monkeypatch.setattr(insight_reader, "FIGURES_WAITING", 1)
    body = (await get(rig, "oz")).json()
    assert (body["approved"] + body["denied"], body["more"], body["cut"]) == (3, True, False)
    assert sum(each["approved"] + each["denied"] for each in body["by_tool"]) == 2
    assert (body["waiting"]["count"], body["waiting"]["more"]) == (1, True)


async def test_auditor_reads_who_can_approve_each_tool(rig: HistoryRig) -> None:
    body = (await get(rig, "oz")).json()
    found = {row["tool"]: row for row in body["coverage"]}
    assert found["gift"]["approvers"] == [{"name": "user:eve", "count": 1}, {"name": "role:finance", "count": 2}]
    assert [row["holes"] for row in body["coverage"]] == [[], [], []]
