import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest
from gateway_login import bearer, browser, locked_rig, sign_in, token_of
from gateway_rig import GatewayRig
from polling import until

from signoff.contracts.errors import BadRequest
from signoff.contracts.limits import LISTS_AT_ONCE, LISTS_OF_ONE
from signoff.contracts.person import Person
from signoff.engine import turn_list
from signoff.formats.replace import replace
from signoff.gateway import load_limits
from signoff.gateway.load_limits import SHARED_SECONDS, ListReads, LookInterval
from signoff.store.grants import Grants
from signoff.store.request_reader import RequestReader

ANA = Person(id="ana", roles=("finance",))


class SlowReads:
    """They last until the test releases them."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = 0
        self.now = 0
        self.most = 0

    async def __call__(self, *args: Any, **fields: Any) -> list[Any]:
        self.begun, self.now = self.begun + 1, self.now + 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        return []


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowReads:
    reads = SlowReads()
    # A busy machine may take seconds for thirty pages.
    monkeypatch.setattr(load_limits, "SHARED_SECONDS", 600.0)
    monkeypatch.setattr(turn_list, "turns", reads)
    monkeypatch.setattr(turn_list, "sessions", reads)
    monkeypatch.setattr(RequestReader, "list_waiting", reads)
    monkeypatch.setattr(Grants, "all", reads)
    return reads


LISTS = {
    "/v1/approvals": [f"limit={n}" for n in range(1, 61)],
    "/v1/turns": [f"limit={n}" for n in range(1, 61)],
    "/v1/sessions": [f"limit={n}" for n in range(1, 61)],
    "/v1/turns/abc": ["" for _ in range(60)],
    "/v1/approvals/ABC-DEF": ["" for _ in range(60)],
}


@pytest.mark.parametrize("path", LISTS)
async def test_sixty_lists_of_one_person_leave_capacity_for_others(
    gateway: GatewayRig, slow: SlowReads, path: str
) -> None:
    rig = locked_rig(gateway)
    guest, approver = bearer(await token_of(rig, "guest", "read")), bearer(await token_of(rig, "approver", "read"))
    asked = [asyncio.create_task(rig.http.get(f"{path}?{query}", headers=guest)) for query in LISTS[path]]
    await until(lambda: sum(task.done() for task in asked) == 60 - LISTS_OF_ONE)
    refused = [task.result() for task in asked if task.done()]
    assert Counter((each.status_code, each.json()["code"], each.headers["retry-after"]) for each in refused) == {
        (429, "lists", "1"): 60 - LISTS_OF_ONE
    }
    await until(lambda: slow.now == LISTS_AT_ONCE)
    other = asyncio.create_task(rig.http.get("/v1/approvals", headers=approver))
    await until(lambda: slow.now == LISTS_AT_ONCE + 1)
    slow.go.set()
    assert (await other).status_code == 200
    assert {each.status_code for each in await asyncio.gather(*asked)} <= {200, 404, 429}
    assert (slow.begun, slow.most) == (LISTS_OF_ONE + 1, LISTS_AT_ONCE + 1)


@pytest.mark.parametrize("path", ["/v1/approvals", "/v1/turns", "/v1/sessions", "/v1/grants"])
async def test_equal_lists_of_one_person_and_scope_are_read_once(
    gateway: GatewayRig, slow: SlowReads, path: str
) -> None:
    rig = locked_rig(gateway)
    reader, same, wider = [
        bearer(await token_of(rig, "approver", *scopes)) for scopes in (("read",), ("read",), ("read", "decide"))
    ]
    asked = [asyncio.create_task(rig.http.get(path, headers=each)) for each in (*[reader] * 30, *[same] * 30)]
    await until(lambda: slow.begun == 1)
    asked.append(asyncio.create_task(rig.http.get(path, headers=wider)))
    await until(lambda: slow.begun == 2)
    slow.go.set()
    assert {each.status_code for each in await asyncio.gather(*asked)} == {200}
    assert slow.begun == 2


@pytest.mark.parametrize("path", ["/", "/turns", "/sessions", "/grants"])
async def test_equal_pages_of_one_person_are_read_once(gateway: GatewayRig, slow: SlowReads, path: str) -> None:
    rig = locked_rig(gateway)
    slow.go.set()
    async with browser(rig) as page:
        await sign_in(page, await token_of(rig, "approver"))
        rig.deps.lists.forget()
        slow.begun = 0
        slow.go.clear()
        asked = [asyncio.create_task(page.get(path)) for _ in range(30)]
        await until(lambda: slow.begun == 1)
        slow.go.set()
        assert {each.status_code for each in await asyncio.gather(*asked)} == {200}
    assert slow.begun == 1


async def test_list_after_a_write_is_read_again(gateway: GatewayRig, slow: SlowReads) -> None:
    rig = locked_rig(gateway)
    head = bearer(await token_of(rig, "approver"))
    slow.go.set()
    await rig.http.get("/v1/approvals", headers=head)
    await rig.http.get("/v1/approvals", headers=head)
    before = slow.begun
    await rig.http.post("/v1/approvals/decide", headers=head, json={"decisions": []})
    await rig.http.get("/v1/approvals", headers=head)
    assert (before, slow.begun) == (1, 2)


async def test_list_is_shared_for_a_second_among_equal_roles() -> None:
    seconds = [10.0]
    lists, begun = ListReads(lambda: seconds[0]), []

    async def read() -> int:
        begun.append(len(begun))
        return len(begun)

    async def listed(person: Person, *scopes: str) -> int:
        return await lists.share(person, scopes, ("waiting",), read)

    assert [await listed(ANA), await listed(ANA)] == [1, 1]
    assert await listed(replace(ANA, roles=("finance", "admin"))) == 2
    assert await listed(replace(ANA, tenant="acme")) == 3
    assert await listed(ANA, "read") == 4
    seconds[0] += SHARED_SECONDS - 0.1
    assert await listed(ANA) == 1
    seconds[0] += 0.1
    assert await listed(ANA) == 5


async def test_failed_list_is_not_shared_and_an_aborted_reader_ends_no_other() -> None:
    lists, reads = ListReads(), SlowReads()

    async def fails() -> None:
        raise BadRequest("no")

    for _ in range(LISTS_OF_ONE + 1):
        with pytest.raises(BadRequest, match="no"):
            await lists.share(ANA, (), ("fails",), fails)
    first, second = (asyncio.create_task(lists.share(ANA, (), ("slow",), reads)) for _ in range(2))
    await until(lambda: reads.begun == 1)
    first.cancel()
    reads.go.set()
    assert await second == []
    assert reads.begun == 1


def test_one_waiting_call_is_polled_less_often_over_time() -> None:
    looks = LookInterval()
    with looks.awaiting():
        assert [looks.seconds(each) for each in (0, 0.03, 0.08, 8)] == [0.004, 0.004, 0.01, 1.0]


def test_poll_interval_grows_with_the_number_of_waiting_calls() -> None:
    looks = LookInterval()
    with looks.awaiting():
        with looks.awaiting():
            assert looks.seconds(0) == 0.008
        with contextlib.suppress(ValueError), looks.awaiting():
            raise ValueError
        assert looks.seconds(0) == 0.004
