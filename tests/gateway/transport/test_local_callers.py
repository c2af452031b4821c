import dataclasses

from gateway_rig import GatewayRig, http_of
from starlette.applications import Starlette
from tables import table

from signoff.formats.replace import replace
from signoff.gateway.app import build_app

CALLERS = {
    "127.0.0.1": 200,
    "127.0.0.9": 200,
    "::1": 200,
    "::ffff:127.0.0.1": 200,
    "192.0.2.7": 403,
    "10.0.0.1": 403,
    "::ffff:192.0.2.7": 403,
    "unknown": 403,
}


async def status(app: Starlette, caller: str, path: str) -> int:
    async with http_of(app, client=(caller, 4321)) as http:
        return (await http.get(path)).status_code


@table("caller", *CALLERS)
async def test_development_refuses_clients_on_other_machines(gateway: GatewayRig, caller: str) -> None:
    for path in ("/", "/v1/approvals", "/healthz"):
        assert await status(gateway.app, caller, path) == CALLERS[caller]


async def test_unsafe_open_and_production_accept_other_machines(gateway: GatewayRig) -> None:
    settings = gateway.deps.settings
    opened = replace(settings, unsafe_open=True)
    production = replace(settings, profile="production")
    for each in (opened, production):
        app = build_app(dataclasses.replace(gateway.deps, settings=each))
        assert await status(app, "192.0.2.7", "/healthz") == 200
