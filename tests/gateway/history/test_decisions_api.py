import csv
import io
import json
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from gateway_login import bearer
from gateway_rig import http_of
from history_rig import SECRET, HistoryRig

from signoff.gateway.app import build_app
from signoff.gateway.history import past_reader
from signoff.store.store import Store
from signoff.store.tokens import SCOPES, Tokens


@pytest.fixture
async def rig(store: Store) -> HistoryRig:
    rig = HistoryRig(store)
    await rig.decided({"amount": 20, "to": "Zoe", "pin": SECRET})
    await rig.decided({"amount": 30, "to": "=Zoe"}, by="bo", verdict="denied")
    await rig.decided({"amount": 40, "to": "Zoe"}, tool="order", by="eve")
    await rig.index()
    return rig


async def get(rig: HistoryRig, person: str, path: str = "", **params: Any) -> httpx2.Response:
    deps = rig.deps
    secret, _ = await Tokens(rig.store).create("main", person, SCOPES, lifetime=timedelta(days=1), now=deps.clock())
    async with http_of(build_app(deps)) as http:
        return await http.get(f"/v1/decisions{path}", params=params, headers=bearer(secret))


async def test_each_reader_lists_and_counts_their_own_requests(rig: HistoryRig) -> None:
    for person, amounts in {
        "ana": ["30", "20"],
        "eve": ["40"],
        "oz": ["40", "30", "20"],
        "guest": ["40", "30", "20"],
    }.items():
        body = (await get(rig, person, text="zoe")).json()
        assert [each["rows"][0]["value"] for each in body["decisions"]] == amounts
        assert (body["count"], body["more"], body["next"]) == (len(amounts), False, "")
        assert SECRET not in json.dumps(body)
    body = (await get(rig, "ana", scope="mine", state="approved")).json()
    assert [each["decided_by"] for each in body["decisions"]] == ["ana"]


async def test_caller_without_a_token_or_of_another_tenant_lists_nothing(rig: HistoryRig) -> None:
    async with http_of(build_app(rig.deps)) as http:
        for path in ("", "/export"):
            assert (await http.get(f"/v1/decisions{path}")).status_code == 401
    assert (await get(rig, "ana", tenant="other")).status_code == 404
    assert (await get(rig, "ana", scope="mine", **{"as": "bo"})).status_code == 403


@pytest.mark.parametrize(
    "params",
    [{"text": "x" * 10_000}, {"text": "a b " + " ".join(map(str, range(40)))}, {"after": "x"}, {"scope": "every"},
     {"since": "soon"}, {"limit": 0}],
)  # fmt: skip
async def test_invalid_search_is_refused(rig: HistoryRig, params: dict[str, Any]) -> None:
    for path in ("", "/export"):
        if path and not {"text", "scope", "since"} & params.keys():
            continue
        assert (await get(rig, "ana", path, **params)).status_code == 422


async def test_export_has_all_pages_of_the_readers_requests_alone(
    rig: HistoryRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_reader, "_EXPORT_PIECE", 1)
    answer = await get(rig, "ana", "/export", format="csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["state"], row["decided_by"]) for row in rows] == [("denied", "bo"), ("approved", "ana")]
    lines = (await get(rig, "ana", "/export", text="zoe")).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["main.s.t2.c1.1", "main.s.t1.c1.1"]
    assert SECRET not in answer.text + "".join(lines)


async def test_times_without_a_zone_are_in_utc(rig: HistoryRig) -> None:
    now = rig.deps.clock()
    for since, count in ((now - timedelta(hours=1), 2), (now + timedelta(hours=1), 0)):
        assert (await get(rig, "ana", since=f"{since:%Y-%m-%dT%H:%M:%S}")).json()["count"] == count
        assert (await get(rig, "ana", until=f"{since:%Y-%m-%dT%H:%M:%S}")).json()["count"] == 2 - count
