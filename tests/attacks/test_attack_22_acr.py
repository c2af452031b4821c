"""Before the fix the `acr` value `urn:example:mfa:none` approved a request that needs `mfa`."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from gateway_login import bearer, browser, hidden, locked_rig, token_of
from gateway_rig import PEOPLE, GatewayRig, gateway_rig
from oidc_provider import CLIENT, Provider
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.store.store import open_store

ACR = "https://refeds.example/profile/mfa"


def wire_catalog(ledger: Ledger) -> Catalog:
    policy = ApprovalPolicy(min_assurance="mfa")
    return catalog_of([pay_tool(ledger, policy, name="easy", effect="Pay {amount} to {to}", input_schema=_MONEY)])


_MONEY: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}, "to": {"type": "string"}},
    "required": ["amount", "to"],
}


@pytest.fixture
async def rig(client: Client, tmp_path: Path, provider: Provider) -> AsyncIterator[GatewayRig]:
    login = f"{provider.issuer}#ana-at-work"
    people = [replace(each, identities={"oidc": (login,)}) if each.id == "ana" else each for each in PEOPLE]
    queue = f"attack22-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(f"sqlite:///{tmp_path}/signoff.db") as store,
        gateway_rig(
            client, store, queue, catalog_of_ledger=wire_catalog, profile="production", people=FixedDirectory(people)
        ) as open_rig,
    ):
        yield locked_rig(
            open_rig,
            people=people,
            oidc_issuer=provider.issuer,
            oidc_client_id=CLIENT,
            oidc_client_secret="env:THE_SECRET",
            oidc_mfa_acr=(ACR,),
        )


async def approved_by(rig: GatewayRig, approval: str) -> str:
    async with browser(rig) as page:
        sent = await page.get("/login/oidc?next=%2Ftools")
        async with httpx2.AsyncClient(verify=False, timeout=60) as elsewhere:
            agreed = await elsewhere.get(sent.headers["location"])
        address = urlsplit(agreed.headers["location"])
        assert (await page.get(f"{address.path}?{address.query}")).status_code == 303
        card = (await page.get(f"/approvals/{approval}")).text
        action = f"/approvals/{approval}/decide"
        form = hidden(card, action) if f'action="{action}"' in card else {}
        await page.post(action, data={**form, "verdict": "approved", "typed": "420"})
    return (await rig.turns.signoff.request(approval)).state


async def test_only_configured_acr_values_count_as_second_factor(rig: GatewayRig, provider: Provider) -> None:
    # Any other `acr` is an ordinary sign-in; the configured value approves. With `mfa` searched anywhere in `acr`
    # instead of the comparison in `assurance_of`, `urn:example:mfa:none` approved.
    headers = bearer(await token_of(rig, "guest"))
    answer = await rig.http.post("/v1/turns", json={"text": "easy", "actor": "desk"}, headers=headers)
    body = answer.json()
    view = await rig.turns.waiting(TurnKey(body["tenant"], body["session"], body["turn"]))
    approval = next(call.approval.id for call in view.calls if call.approval is not None)
    for acr in ("urn:example:mfa:none", "no-mfa", "MFA", f"{ACR}/not", ACR.upper(), [ACR]):
        provider.claims = {"acr": acr}
        assert await approved_by(rig, approval) == "pending", acr
    provider.claims = {"acr": ACR}
    assert await approved_by(rig, approval) == "approved"
