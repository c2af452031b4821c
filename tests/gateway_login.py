import html
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from fastapi.routing import APIRoute
from gateway_rig import BASE, PEOPLE, GatewayRig

from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.people.directory import FixedDirectory
from signoff.settings import Settings
from signoff.store.tokens import SCOPES, Scope, Tokens

STRANGER = Person(id="zoe", name="Zoe", tenant="acme", roles=("approvers", "finance"))
"""A person of another tenant."""
_FIELD = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')


def locked_rig(
    gateway: GatewayRig,
    *,
    clock: Callable[[], datetime] | None = None,
    people: Sequence[Person] = (*PEOPLE, STRANGER),
    **settings: Any,
) -> GatewayRig:
    """`http` has no token."""
    return gateway.beside(
        people=FixedDirectory(people),
        settings=Settings(profile="production", **settings),
        clock=clock or (lambda: datetime.now(UTC)),
    )


async def token_of(rig: GatewayRig, person: str, *scopes: Scope, tenant: str = "main", days: float = 1) -> str:
    secret, _ = await Tokens(rig.deps.store).create(
        tenant, person, scopes or SCOPES, lifetime=timedelta(days=days), now=rig.deps.clock()
    )
    return secret


async def asked_of(rig: GatewayRig, text: str = "pay", by: str = "guest", **fields: Any) -> str:
    headers = bearer(await token_of(rig, by))
    answer = await rig.http.post("/v1/turns", json={"text": text, "actor": "desk", **fields}, headers=headers)
    assert answer.status_code == 201, answer.text
    body = answer.json()
    view = await rig.turns.waiting(TurnKey(body["tenant"], body["session"], body["turn"]))
    return next(call.approval.id for call in view.calls if call.approval is not None)


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def browser(rig: GatewayRig) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=rig.app),
        base_url=BASE,
        headers={"sec-fetch-site": "same-origin"},
        cookies={"signoff_language": "en"},
    )


async def sign_in(page: httpx2.AsyncClient, secret: str, then: str = "/") -> httpx2.Response:
    form = hidden((await page.get("/login", params={"next": then})).text, "/login")
    return await page.post("/login", data={**form, "secret": secret})


async def as_person(page: httpx2.AsyncClient, person: str) -> None:
    form = hidden((await page.get("/")).text, "/person")
    await page.post("/person", data={**form, "person": person})


async def answered(page: httpx2.AsyncClient, approval: str, **fields: str) -> httpx2.Response:
    path = f"/approvals/{approval}/decide"
    form = hidden((await page.get(f"/approvals/{approval}")).text, path)
    return await page.post(path, data={**form, **fields}, follow_redirects=True)


def hidden(page: str, action: str) -> dict[str, str]:
    form = page[page.index(f'action="{action}"') :]
    return dict(_FIELD.findall(form[: form.index("</form>")]))


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def all_routes(rig: GatewayRig) -> list[tuple[str, str]]:
    routes = [route for route in rig.app.routes if isinstance(route, APIRoute)]
    return [(method, re.sub(r"\{\w+\}", "main.a.b.c1.1", each.path)) for each in routes for method in each.methods]
