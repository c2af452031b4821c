"""`freeze` and `unfreeze`: the emergency stop of a tenant."""

from collections.abc import Awaitable
from typing import Annotated, TypeVar

import typer

from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.options import AsJson, Operator, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean, frozen_line, swept_lines
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.limits import REASON_CHARS

T = TypeVar("T")
app = typer.Typer(rich_markup_mode=None)

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant; `main` unless there are several.")]


@app.command()
def freeze(
    tenant: Tenant,
    reason: Annotated[str, typer.Option(help="The reason, for the agents and the approvers.")],
    person: Operator = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Deny every call in a tenant until it is unfrozen: no new calls start, and waiting requests are withdrawn.

    While no gateway runs, use `signoff store freeze`.
    """
    words = reason.strip()
    if not 0 < len(words) <= REASON_CHARS:
        raise typer.BadParameter(f"say why, in 1 to {REASON_CHARS} characters", param_hint="--reason")

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            frozen = await _reach(client.freeze(words, tenant=tenant, by=person))
        out.show(frozen, frozen_line(frozen.freeze), *swept_lines(frozen.swept))
        return 1 if frozen.swept.waiting else 0

    run(body, as_json=as_json)


@app.command()
def unfreeze(tenant: Tenant, person: Operator = "", url: Url = None, as_json: AsJson = False) -> None:
    """Lift a freeze. Calls denied during the freeze stay denied."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            lifted = await _reach(client.unfreeze(tenant, by=person))
        since = f"{lifted.at:%Y-%m-%d %H:%M} UTC"
        out.show(lifted, f"unfrozen: {clean(tenant)}, frozen by {clean(lifted.by)} since {since}")
        return 0

    run(body, as_json=as_json)


async def _reach(answer: Awaitable[T]) -> T:
    """Raise `ServerUnavailable` that names the commands for a time without gateway."""
    try:
        return await answer
    except ServerUnavailable as error:
        message = f"{error.message}; with the store's address `signoff store freeze` and `unfreeze` need none"
        raise ServerUnavailable(message) from None
