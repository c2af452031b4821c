import asyncio
import contextlib
import html
import json
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2

from signoff.temporal.embedded_server import free_port

_FOLDER = Path(__file__).parent / "openid_server"
_FORM = re.compile(r'<form[^>]* action="([^"]+)"(.*?)</form>', re.DOTALL)
_FIELD = re.compile(r"<input([^>]*)>")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_STEPS = 20


@dataclass(frozen=True)
class OpenIdServer:
    issuer: str
    secret: str


@contextlib.asynccontextmanager
async def running_openid_server(
    redirect: str, secret: str, accounts: Mapping[str, Mapping[str, Any]]
) -> AsyncIterator[OpenIdServer]:
    """`accounts` are claims by login, and any password is accepted."""
    port = free_port()
    words = ("node", "server.mjs", str(port), redirect, secret, json.dumps(accounts))
    process = await asyncio.create_subprocess_exec(*words, cwd=_FOLDER, stdout=PIPE)
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).strip() == b"ready"
        yield OpenIdServer(f"http://127.0.0.1:{port}", secret)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def sign_in_at(page: httpx2.AsyncClient, start: str, login: str) -> httpx2.Response:
    answer = await page.get(start)
    for _ in range(_STEPS):
        if answer.is_redirect:
            answer = await page.get(urljoin(str(answer.url), answer.headers["location"]))
            continue
        form = _FORM.search(answer.text) if "/interaction/" in str(answer.url) else None
        if form is None:
            return answer
        attributes = (dict(_ATTRIBUTE.findall(found)) for found in _FIELD.findall(form[2]))
        fields = {each["name"]: each.get("value", "") for each in attributes if "name" in each}
        given = {name: login for name in fields if name in ("login", "password")}
        answer = await page.post(urljoin(str(answer.url), html.unescape(form[1])), data=fields | given)
    raise AssertionError(f"the provider asks without an end: {answer.url}")
