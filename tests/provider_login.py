"""What tests of sign-ins at a provider share: the provider, the settings that name it, and the way there and back."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from gateway_login import bearer, token_of
from gateway_rig import GatewayRig
from oidc_provider import CLIENT, SECRET, Provider, running_provider

from signoff.contracts.ids import TurnKey

START = "/login/oidc?next=%2Ftools"


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Provider]:
    """A provider of this test's own, and its client's secret in a variable."""
    monkeypatch.setenv("THE_SECRET", SECRET)
    async with running_provider() as running:
        yield running


def login_settings(provider: Provider, roles: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """By whom people sign in, and what their groups give them."""
    return {
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT,
        "oidc_client_secret": "env:THE_SECRET",
        "oidc_roles": roles,
    }


async def to_provider(page: httpx.AsyncClient) -> str:
    """Go to the provider, which agrees at once; returns the address it sends the browser back to."""
    sent = await page.get(START)
    assert sent.status_code == 303, sent.text
    async with httpx.AsyncClient(verify=False) as elsewhere:
        agreed = await elsewhere.get(sent.headers["location"])
    address = urlsplit(agreed.headers["location"])
    return f"{address.path}?{address.query}"


async def sign_in_at_provider(page: httpx.AsyncClient) -> httpx.Response:
    """The whole way there and back."""
    return await page.get(await to_provider(page))


async def asked(rig: GatewayRig, text: str = "pay") -> str:
    """A request of guest's that waits."""
    headers = bearer(await token_of(rig, "guest"))
    answer = await rig.http.post("/v1/turns", json={"text": text, "actor": "desk"}, headers=headers)
    assert answer.status_code == 201, answer.text
    body = answer.json()
    view = await rig.turns.waiting(TurnKey(body["tenant"], body["session"], body["turn"]))
    return next(call.approval.id for call in view.calls if call.approval is not None)
