import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from attack_site import AttackSite
from health_probe import probed
from stranger import Answered, Line, dialled, head, pour

from signoff.contracts import limits
from signoff.gateway.transport.server import allow_connections

FORM = "application/x-www-form-urlencoded"
Load = Callable[[AttackSite], Awaitable[None]]


async def _held_open(url: str, count: int, begins: bytes) -> list[Line]:
    async with contextlib.AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(dialled(url)) for _ in range(count)]
        await asyncio.gather(*(line.send(begins) for line in lines))
        await asyncio.gather(*(line.answer() for line in lines))
        return lines


async def _posted(url: str, path: str, body: bytes, kind: str = FORM) -> Answered:
    return await pour(url, head(url, "POST", path, content_type=kind, content_length=str(len(body))), iter([body]))


def _told(site: AttackSite, query: str) -> int:
    with contextlib.closing(sqlite3.connect(site.folder / "signoff.db")) as store:
        found: int = store.execute(query).fetchone()[0]
        return found


@contextlib.asynccontextmanager
async def _looks(site: AttackSite) -> AsyncIterator[set[int]]:
    """The probe rows show when readiness checked the store."""
    seen: set[int] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            seen.add(_told(site, "SELECT coalesce(max(at), 0) FROM probes"))

    watcher = asyncio.create_task(asyncio.to_thread(watch))
    try:
        yield seen
    finally:
        over.set()
        await watcher


async def stranger_body_bytes(site: AttackSite) -> None:
    just = b"token=" + b"%41" * ((limits.STRANGER_BODY_BYTES - 6) // 3)
    assert len(just) <= limits.STRANGER_BODY_BYTES < len(just) + 3
    assert (await _posted(site.url, "/login", just)).status == 403
    assert (await _posted(site.url, "/login", just + b"xxx")).status == 413


async def request_body_bytes(site: AttackSite) -> None:
    """`REQUEST_BODY_BYTES`: without a token it is not read, whether it arrives or not."""
    whole = b" " * limits.REQUEST_BODY_BYTES
    assert (await _posted(site.url, "/v1/turns", whole, "application/json")).status in (401, 0)
    begins = head(site.url, "POST", "/v1/turns", content_type="application/json", content_length=str(len(whole)))
    assert (await pour(site.url, begins, iter(()))).status == 401


async def bodies_at_once(site: AttackSite) -> None:
    """`BODIES_AT_ONCE` by `SENDER_SHARE`, for `BODY_GRACE_SECONDS`."""
    begins = head(site.url, "POST", "/login", content_type=FORM, content_length="1000")
    await _held_open(site.url, limits.BODIES_AT_ONCE // limits.SENDER_SHARE, begins)


async def body_bytes_at_once(site: AttackSite) -> None:
    mail = b"body-mime=" + b"x" * (10 * limits.MIB)
    begins = head(site.url, "POST", "/channels/mail", content_type=FORM, content_length=str(len(mail))) + mail[:-1]
    most = limits.BODY_BYTES_AT_ONCE // limits.SENDER_SHARE // len(mail)
    async with contextlib.AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(dialled(site.url)) for _ in range(most + 2)]
        # Each lacks its last byte until all of them have sent as much as is accepted.
        await asyncio.gather(*(line.send(begins) for line in lines))
        await asyncio.gather(*(line.send(mail[-1:]) for line in lines))
        statuses = [status for status, _ in await asyncio.gather(*(line.answer() for line in lines))]
    assert set(statuses) <= {401, 503, 0}
    assert statuses.count(401) <= most


async def header_seconds(site: AttackSite) -> None:
    await _held_open(site.url, 100, head(site.url, "GET", "/login")[:-2])


async def connections(site: AttackSite) -> None:
    """Leave one place of `CONNECTIONS`."""
    # Each is also a file of this process; with fewer files, the gateway accepts fewer.
    await _held_open(site.url, allow_connections() - 20, b"")


async def form_fields(site: AttackSite) -> None:
    for _ in range(20):
        assert (await _posted(site.url, "/login", b"&".join([b"a=1"] * limits.FORM_FIELDS))).status == 403
    assert (await _posted(site.url, "/login", b"&".join([b"a=1"] * (limits.FORM_FIELDS + 1)))).status == 422


async def ready_seconds(site: AttackSite) -> None:
    begun = time.monotonic()
    async with _looks(site) as seen:
        for _ in range(5):
            answers = await asyncio.gather(
                *(pour(site.url, head(site.url, "GET", "/readyz"), iter(())) for _ in range(40))
            )
            assert {answer.status for answer in answers} <= {200, 503}
    # An earlier one, and one at each end of the measured time.
    assert len(seen) <= (time.monotonic() - begun) / limits.READY_SECONDS + 3


async def refusals_a_minute(site: AttackSite) -> None:
    forged = "SELECT count(*) FROM audit_records WHERE data LIKE '%forged message%'"
    before, begun = _told(site, forged), time.monotonic()
    for _ in range(10):
        answers = await asyncio.gather(
            *(_posted(site.url, "/channels/mail", b"timestamp=1&token=a") for _ in range(20))
        )
        assert {answer.status for answer in answers} == {401}
    # One more minute than has passed may have started.
    minutes = 2 + (time.monotonic() - begun) // 60
    assert _told(site, forged) - before <= minutes * limits.REFUSALS_A_MINUTE


LOADS: tuple[Load, ...] = (
    stranger_body_bytes,
    request_body_bytes,
    bodies_at_once,
    body_bytes_at_once,
    header_seconds,
    connections,
    form_fields,
    ready_seconds,
    refusals_a_minute,
)


@pytest.mark.parametrize("load", LOADS, ids=[load.__name__ for load in LOADS])
async def test_health_is_answered_at_each_limit(channel_site: AttackSite, load: Load) -> None:
    # Within a second, plus the machine's own delay. Without each limit its load failed: bodies too large, too many at
    # once, with too many fields or forged too often were accepted or recorded, `/v1/turns` read a body before its
    # authentication, readiness checked a hundred times a second, and the gateway waited for silent lines, heads and
    # bodies until the test timed out.
    async with probed(channel_site.url) as found:
        await load(channel_site)
    assert found.in_time, f"{load.__name__}: {found}"
