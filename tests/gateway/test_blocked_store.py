import asyncio
import contextlib
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
from gateway_rig import GatewayRig, gateway_rig
from temporalio.client import Client

from signoff.contracts.receipt import Receipt
from signoff.store.questions.answers import OwedAnswer
from signoff.store.questions.questions import Questions
from signoff.store.store import open_store

READ_SECONDS = 5.0
"""A read takes milliseconds. Without a separate connection it waited 15 s for each earlier write."""
WRITE_SECONDS = 8.0
"""A write is refused after 2 s."""


@pytest.fixture
async def site(client: Client, tmp_path: Path) -> AsyncIterator[GatewayRig]:
    queue = f"blocked-{uuid.uuid4().hex[:12]}"
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as store, gateway_rig(client, store, queue) as rig:
        yield rig


@contextlib.contextmanager
def locked_for_writing(file: Path) -> Iterator[None]:
    other = sqlite3.connect(file, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


async def timed(http: httpx2.AsyncClient, path: str) -> tuple[httpx2.Response, float]:
    begun = time.monotonic()
    response = await http.get(path, headers={"accept-language": "en"})
    return response, time.monotonic() - begun


async def test_reads_answer_and_decisions_are_refused_while_another_process_holds_the_lock(
    site: GatewayRig, tmp_path: Path
) -> None:
    approval = await site.asked("pay")
    # The first page of a store makes its key.
    assert (await site.http.get("/")).status_code == 200
    with locked_for_writing(tmp_path / "signoff.db"):
        begun = time.monotonic()
        deciding = [asyncio.create_task(site.decide(approval, verdict="approved", revision=1)) for _ in range(3)]
        # The first writer now waits for the lock, and two more wait for the first.
        while not site.deps.store._base.problem():
            await asyncio.sleep(0.01)
        for path in ("/v1/approvals", f"/v1/approvals/{approval}", "/", f"/approvals/{approval}"):
            response, seconds = await timed(site.http, path)
            assert response.status_code == 200, path
            assert seconds < READ_SECONDS, path
        ready, seconds = await timed(site.http, "/readyz")
        assert (ready.status_code, seconds < READ_SECONDS) == (503, True)
        assert "another process holds the lock" in ready.json()["checks"]["store"]
        answers = await asyncio.gather(*deciding)
        assert time.monotonic() - begun < WRITE_SECONDS
        assert [each.status_code for each in answers] == [503, 503, 503]
        assert "nothing was written" in answers[0].json()["message"]
    while (await site.http.get("/readyz")).json()["checks"]["store"] != "ok":
        await asyncio.sleep(0.1)
    rows = await Questions(site.deps.store).read(approval)
    assert rows is not None
    assert rows.answers == ()
    assert (await site.decide(approval, verdict="approved", revision=1)).status_code == 200


async def test_stored_answer_is_accepted_if_the_store_is_blocked_before_the_turn_has_it(
    site: GatewayRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = await site.asked("pay")
    wake = site.deps.client.wake
    with contextlib.ExitStack() as lock:

        async def wake_and_lock(owed: OwedAnswer) -> Receipt:
            receipt = await wake(owed)
            lock.enter_context(locked_for_writing(tmp_path / "signoff.db"))
            return receipt

        monkeypatch.setattr(site.deps.client, "wake", wake_and_lock)
        response = await site.decide(approval, verdict="denied", revision=1)
        monkeypatch.undo()
    assert (response.status_code, response.json()["status"]) == (200, "accepted")
    rows = await Questions(site.deps.store).read(approval)
    assert rows is not None
    assert [each.vote.decision.verdict for each in rows.answers] == ["denied"]
