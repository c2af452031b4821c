"""Each limit that a stranger can reach, reached: health is answered within a second all the while.

Judged against what the machine takes without load. The limits stand in `contracts/limits.py`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from attack_site import AttackSite
from health_probe import at_rest, in_time, probed
from stranger import Answered, Line, dialled, head, pour

from signoff.contracts import limits

FORM = "application/x-www-form-urlencoded"
Load = Callable[[str], Awaitable[None]]


async def _held_open(url: str, count: int, begins: bytes) -> list[Line]:
    async with contextlib.AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(dialled(url)) for _ in range(count)]
        await asyncio.gather(*(line.send(begins) for line in lines))
        await asyncio.gather(*(line.answer() for line in lines))
        return lines


async def _posted(url: str, path: str, body: bytes, kind: str = FORM) -> Answered:
    return await pour(url, head(url, "POST", path, content_type=kind, content_length=str(len(body))), iter([body]))


async def stranger_body_bytes(url: str) -> None:
    """`STRANGER_BODY_BYTES`: as many as fit, and one more."""
    just = b"token=" + b"%41" * ((limits.STRANGER_BODY_BYTES - 6) // 3)
    assert len(just) <= limits.STRANGER_BODY_BYTES < len(just) + 3
    assert (await _posted(url, "/login", just)).status == 403
    assert (await _posted(url, "/login", just + b"xxx")).status == 413


async def request_body_bytes(url: str) -> None:
    """`REQUEST_BODY_BYTES`: to nobody at all, it is not read."""
    assert (await _posted(url, "/v1/turns", b" " * limits.REQUEST_BODY_BYTES, "application/json")).status in (401, 0)


async def bodies_at_once(url: str) -> None:
    """`BODIES_AT_ONCE` by `SENDER_SHARE`, for `BODY_GRACE_SECONDS`: one address' share of bodies that do not come."""
    begins = head(url, "POST", "/login", content_type=FORM, content_length="1000")
    await _held_open(url, limits.BODIES_AT_ONCE // limits.SENDER_SHARE, begins)


async def body_bytes_at_once(url: str) -> None:
    """`BODY_BYTES_AT_ONCE` by `SENDER_SHARE`: as many large mails as one address may have held, and more."""
    mail = b"body-mime=" + b"x" * (10 * limits.MIB)
    share = limits.BODY_BYTES_AT_ONCE // limits.SENDER_SHARE
    answers = await asyncio.gather(*(_posted(url, "/channels/mail", mail) for _ in range(share // len(mail) + 2)))
    assert {answer.status for answer in answers} <= {401, 503, 0}


async def header_seconds(url: str) -> None:
    """`HEADER_SECONDS`: heads that never end."""
    await _held_open(url, 100, head(url, "GET", "/login")[:-2])


async def connections(url: str) -> None:
    """Of `CONNECTIONS`, so many that a place is left: silent ones."""
    await _held_open(url, min(limits.CONNECTIONS, 400) - 20, b"")


async def form_fields(url: str) -> None:
    """`FORM_FIELDS`: as many as are read, again and again, and one more."""
    for _ in range(20):
        assert (await _posted(url, "/login", b"&".join([b"a=1"] * limits.FORM_FIELDS))).status == 403
    assert (await _posted(url, "/login", b"&".join([b"a=1"] * (limits.FORM_FIELDS + 1)))).status == 422


async def ready_seconds(url: str) -> None:
    """`READY_SECONDS`: readiness asked by many at once looks at store and server once a second."""
    for _ in range(5):
        answers = await asyncio.gather(*(pour(url, head(url, "GET", "/readyz"), iter(())) for _ in range(40)))
        assert {answer.status for answer in answers} <= {200, 503}


async def refusals_a_minute(url: str) -> None:
    """`REFUSALS_A_MINUTE` and `REFUSAL_FLUSH_SECONDS`: refused sign-ins and forged messages, few of them written."""
    for _ in range(10):
        answers = await asyncio.gather(*(_posted(url, "/channels/mail", b"timestamp=1&token=a") for _ in range(20)))
        assert {answer.status for answer in answers} == {401}


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
async def test_health_is_answered_at_each_bound(channel_site: AttackSite, load: Load) -> None:
    """Within a second, and what the machine itself is late by."""
    rest = await at_rest(channel_site.url)
    async with probed(channel_site.url) as taken:
        await load(channel_site.url)
    assert in_time(taken, rest), (load.__name__, max(taken), rest)
