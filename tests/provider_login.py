import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from gateway_login import hidden, locked_rig
from gateway_rig import GatewayRig, gateway_rig
from oidc_provider import CLIENT, SECRET, Provider, running_provider
from temporalio.client import Client

from signoff.contracts.person import Person
from signoff.people.directory import FixedDirectory
from signoff.store.store import open_store

START = "/login/oidc?next=%2Ftools"


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Provider]:
    monkeypatch.setenv("THE_SECRET", SECRET)
    async with running_provider() as running:
        yield running


def login_settings(provider: Provider, roles: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT,
        "oidc_client_secret": "env:THE_SECRET",
        "oidc_roles": roles,
    }


@contextlib.asynccontextmanager
async def provider_rig(
    client: Client, folder: Path, provider: Provider, people: Sequence[Person], groups: Mapping[str, Sequence[str]]
) -> AsyncIterator[GatewayRig]:
    queue = f"provider-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_rig(client, store, queue, profile="production", people=FixedDirectory(people)) as rig,
    ):
        yield locked_rig(rig, people=people, **login_settings(provider, groups))


async def to_provider(page: httpx2.AsyncClient) -> str:
    sent = await page.get(START)
    assert sent.status_code == 303, sent.text
    async with httpx2.AsyncClient(verify=False, timeout=60) as elsewhere:
        agreed = await elsewhere.get(sent.headers["location"])
    address = urlsplit(agreed.headers["location"])
    return f"{address.path}?{address.query}"


async def sign_in_at_provider(page: httpx2.AsyncClient) -> httpx2.Response:
    return await page.get(await to_provider(page))


async def approve_in_browser(page: httpx2.AsyncClient, approval: str) -> httpx2.Response:
    card = await page.get(f"/approvals/{approval}")
    form = hidden(card.text, f"/approvals/{approval}/decide") if card.status_code == 200 else {}
    return await page.post(f"/approvals/{approval}/decide", data={**form, "verdict": "approved"})
