"""Endless bodies and heads held memory and a connection forever."""

import asyncio
import contextlib
import itertools
from urllib.parse import urlencode

import httpx2
from attack_site import AttackSite, form_fields, until
from sqlalchemy import func, select
from stranger import Line, dialled, head

from signoff.contracts.limits import BODIES_AT_ONCE, SENDER_SHARE
from signoff.store.store import open_store
from signoff.store.tables import SESSIONS

MORE = 40
SHARE = BODIES_AT_ONCE // SENDER_SHARE


async def dribble(line: Line, begins: bytes, piece: bytes) -> int:
    await line.send(begins)

    async def more() -> None:
        while await line.send(piece):
            await asyncio.sleep(0.1)

    sending = asyncio.create_task(more())
    try:
        status, _ = await line.answer()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return status


async def test_endless_bodies_time_out(channel_site: AttackSite) -> None:
    # The share of one address is waited for briefly, the rest not at all, and health answers. With an hour's patience
    # in `_whole` the gateway waited until the test timed out, and without a share for one address in `_full` it waited
    # for all 104.
    begins = head(channel_site.url, "POST", "/channels/mail", content_length="1000000", content_type="text/plain")
    async with contextlib.AsyncExitStack() as lines, httpx2.AsyncClient(base_url=channel_site.url, timeout=60) as page:
        opened = [await lines.enter_async_context(dialled(channel_site.url)) for _ in range(SHARE + MORE)]
        answers = [asyncio.create_task(dribble(line, begins, b"x")) for line in opened]
        statuses = [await each for each in itertools.islice(asyncio.as_completed(answers), MORE)]
        # The rest is answered at once; health answers while the gateway waits for the share.
        assert statuses == [503] * MORE
        assert (await page.get("/healthz")).status_code == 200
        assert not all(each.done() for each in answers)
        statuses = await asyncio.gather(*answers)
    assert 0 < statuses.count(408) <= SHARE
    assert statuses.count(503) >= MORE
    assert statuses.count(408) + statuses.count(503) == len(statuses)


async def test_endless_request_heads_are_closed(channel_site: AttackSite) -> None:
    # Closed, whether they send nothing or single bytes. With uvicorn's own connection in `serve` the gateway waited
    # until the test timed out.
    begins = head(channel_site.url, "GET", "/login")[:-2]
    async with contextlib.AsyncExitStack() as lines:
        opened = [await lines.enter_async_context(dialled(channel_site.url)) for _ in range(20)]
        answers = await asyncio.gather(
            *(dribble(line, begins, b"x") for line in opened[:10]), *(dribble(line, b"", b"") for line in opened[10:])
        )
    assert set(answers) == {0}


async def test_aborted_form_signs_no_one_in_and_frees_its_place(channel_site: AttackSite) -> None:
    # Half a form is not processed, no error is logged, and its place is free again. With an aborted body taken for a
    # whole one in `_whole` ten halves signed in, and without the release of its place in `BodyLimit._read` no later
    # sender was served.
    log = channel_site.folder / "gateway" / "gateway.log"
    before = log.read_text()
    # The part sent could sign in alone, except for its missing length.
    fields, cookie = await _sign_in_form(channel_site)
    form = urlencode({**fields, "secret": channel_site.tokens["zoe"]}).encode()
    sent = {"content_type": "application/x-www-form-urlencoded", "cookie": cookie}
    begins = head(channel_site.url, "POST", "/login", content_length=str(len(form) + 1), **sent)
    for number in range(SHARE + MORE):
        async with dialled(channel_site.url) as line:
            await line.send(begins + form)
            # Keep some open until the gateway has read them.
            if number < 10:
                await asyncio.sleep(0.1)
    whole = head(channel_site.url, "POST", "/login", content_length="4", content_type="text/plain") + b"half"

    async def served() -> bool:
        async with dialled(channel_site.url) as line:
            await line.send(whole)
            status, _ = await line.answer()
        return status == 415

    # A gateway notices a closed connection a moment later.
    await until(served)
    text = log.read_text()[len(before) :]
    assert "Traceback" not in text
    assert "failed" not in text
    assert await _signed_in(channel_site, "zoe") == 0
    async with dialled(channel_site.url) as line:
        await line.send(head(channel_site.url, "POST", "/login", content_length=str(len(form)), **sent) + form)
        assert (await line.answer())[0] == 303
    assert await _signed_in(channel_site, "zoe") == 1


async def _sign_in_form(site: AttackSite) -> tuple[dict[str, str], str]:
    async with httpx2.AsyncClient(base_url=site.url, timeout=60) as page:
        fields = form_fields((await page.get("/login")).text, "/login")
        return fields, "; ".join(f"{name}={value}" for name, value in page.cookies.items())


async def _signed_in(site: AttackSite, person: str) -> int:
    query = select(func.count()).select_from(SESSIONS).where(SESSIONS.c.person == person)
    async with open_store(site.stores.gateway) as store:
        return await store.run(lambda connection: connection.execute(query).scalar_one())
