"""Health and readiness of the gateway, for monitoring."""

import asyncio
import time
from datetime import timedelta
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Request, Response

from signoff.contracts.errors import SignoffError
from signoff.contracts.limits import CLOCK_LOOK_SECONDS, READY_SECONDS
from signoff.contracts.responses import Health, ReadinessReport
from signoff.engine.clock_check import clock_problem, server_clock_lead, store_clock_lead
from signoff.engine.kill_switch import OPERATOR
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import AuthenticatedCaller
from signoff.gateway.auth.dependencies import OPEN, Deps, MaybeTokenReader
from signoff.gateway.deps import GatewayDeps
from signoff.store.refusal_counts import refusals_since
from signoff.temporal.server_connection import check_server

router = APIRouter(tags=["service"])
_COUNTED: Final = timedelta(days=1)


class Readiness:
    """Checks whether turns can be started and decided, at most once a second for all callers."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._looking = asyncio.Lock()
        self._checks: dict[str, str] = {}
        self._due = 0.0
        self._server_apart = ""
        self._server_due = 0.0

    async def checks(self) -> dict[str, str]:
        """Return `ok` or the problem for `server`, `store` and `clocks`."""
        async with self._looking:
            if time.monotonic() >= self._due:
                server = await self._server()
                store, apart = await self._store()
                problem = apart or await self._server_clock(server)
                self._checks = {"server": server, "store": store, "clocks": problem or "ok"}
                self._due = time.monotonic() + READY_SECONDS
            return self._checks

    async def _server(self) -> str:
        try:
            await check_server(self._deps.client.temporal)
        except SignoffError as error:
            return error.message
        return "ok"

    async def _store(self) -> tuple[str, str]:
        try:
            return "ok", clock_problem("the store", await store_clock_lead(self._deps.store, clock=self._deps.clock))
        except SignoffError as error:
            return error.message, ""

    async def _server_clock(self, server: str) -> str:
        if server == "ok" and time.monotonic() >= self._server_due:
            ahead = await server_clock_lead(self._deps.client.temporal, clock=self._deps.clock)
            self._server_apart = clock_problem("the Temporal server", ahead)
            self._server_due = time.monotonic() + CLOCK_LOOK_SECONDS
        return self._server_apart


async def _readiness(request: Request) -> Readiness:
    readiness: Readiness = request.app.state.readiness
    return readiness


@router.get("/healthz", summary="Check that the gateway is alive", dependencies=[OPEN])
async def health() -> Health:
    """Always `ok` while the gateway runs."""
    return Health()


@router.get(
    "/readyz",
    summary="Check the server, its search attributes and the store",
    response_model_exclude_none=True,
    responses={503: {"model": ReadinessReport}, 401: FAULTS[401]},
)
async def ready(
    response: Response,
    deps: Deps,
    caller: MaybeTokenReader,
    readiness: Annotated[Readiness, Depends(_readiness)],
) -> ReadinessReport:
    """200 if turns can be started and decided, else 503 with one sentence for each failed check.

    A missing worker is shown in `worker` only, so that proxies continue to send people to their cards.

    Operators with a token, and all in development, get `refused`: the refused inputs of the last day, counted by kind.
    """
    checks = await readiness.checks()
    is_ready = all(state == "ok" for state in checks.values())
    response.status_code = 200 if is_ready else 503
    refused = await _count_refused(deps) if _may_count(deps, caller) else None
    running = await deps.workers.running()
    worker = None if running is None else await deps.workers.problem() or "ok"
    status: Literal["ready", "not ready"] = "ready" if is_ready else "not ready"
    return ReadinessReport(status=status, checks=checks, refused=refused, worker=worker)


def _may_count(deps: GatewayDeps, caller: AuthenticatedCaller | None) -> bool:
    # The counts would show an attacker the effect of each attempt.
    return deps.development if caller is None else OPERATOR in caller.person.roles


async def _count_refused(deps: GatewayDeps) -> dict[str, int]:
    try:
        return await refusals_since(deps.store.read, _COUNTED)
    # The checks already report that the store is down.
    except SignoffError:
        return {}
