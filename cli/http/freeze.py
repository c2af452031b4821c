"""`freeze` and `thaw`: the kill switch."""

from typing import Annotated
from urllib.parse import quote

import typer

from signoff.cli.http.gateway_client import at_gateway, gateway_url
from signoff.cli.loading import loading
from signoff.cli.terminal.options import Address, AsJson, Manifest, Operator, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean, frozen_line, swept_lines
from signoff.contracts.grant import Freeze, Frozen
from signoff.contracts.limits import REASON_CHARS

app = typer.Typer(rich_markup_mode=None)

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant; `main` unless there are several.")]


@app.command()
def freeze(
    tenant: Tenant,
    reason: Annotated[str, typer.Option(help="Why; the agents and everybody who was asked read it.")],
    person: Operator = "",
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Deny everything in a tenant until it is thawed: nothing new starts, and what waits is withdrawn."""
    words = reason.strip()
    if not 0 < len(words) <= REASON_CHARS:
        raise typer.BadParameter(f"say why, in 1 to {REASON_CHARS} characters", param_hint="--reason")

    async def body(out: Output) -> int:
        there = gateway_url(url, manifest, address)
        if there is not None:
            return await _freeze_there(out, there, tenant, words, person)
        with loading():
            from signoff.cli.operating import freeze_here  # noqa: PLC0415
        return await freeze_here(out, tenant, words, person, manifest, address)

    run(body, as_json=as_json)


@app.command()
def thaw(
    tenant: Tenant, person: Operator = "", manifest: Manifest = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Lift a freeze; what was denied meanwhile stays denied."""

    async def body(out: Output) -> int:
        there = gateway_url(url, manifest, None)
        if there is None:
            with loading():
                from signoff.cli.operating import thawed_here  # noqa: PLC0415
            lifted = await thawed_here(tenant, person, manifest)
        else:
            async with at_gateway(there, person) as gateway:
                path = f"/v1/freezes/{quote(tenant, safe='')}"
                lifted = await gateway.call(Freeze, "DELETE", path, params=gateway.acting, json={})
        since = f"{lifted.at:%Y-%m-%d %H:%M} UTC"
        out.show(lifted, f"thawed: {clean(tenant)}, frozen by {clean(lifted.by)} since {since}")
        return 0

    run(body, as_json=as_json)


async def _freeze_there(out: Output, there: str, tenant: str, reason: str, person: str) -> int:
    async with at_gateway(there, person) as gateway:
        sent = {"tenant": tenant, "reason": reason}
        frozen = await gateway.call(Frozen, "POST", "/v1/freezes", params=gateway.acting, json=sent)
    out.show(frozen, frozen_line(frozen.freeze), *swept_lines(frozen.swept))
    return 1 if frozen.swept.waiting else 0
