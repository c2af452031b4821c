"""Remembers that the Temporal server is away, so that only the first caller waits for it."""

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from google.protobuf.message import Message
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode, ServiceClient, ServiceResponse, _BridgeServiceClient

AWAY_SECONDS: Final = 1.0
"""Pause after which an absent server is asked again."""
_PROBE_SECONDS: Final = 3.0
_WAIT_SECONDS: Final = 0.3
"""Time that a caller waits for the probe of a server that is known to be away."""
_MAY_BE_AWAY: Final = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


def watch_server(client: Client) -> Client:
    """Return `client` with a service that fails at once while its server is away."""
    config = client.config(active_config=True)
    config["service_client"] = WatchedService(client.service_client)
    # The active configuration has their changes already.
    config["plugins"] = []
    return Client(**config)


class WatchedService(ServiceClient):
    """Asks a server that did not answer nothing but whether it is back, once in a pause.

    Without it each of a page's calls would wait for the server by itself.
    """

    def __init__(self, service: ServiceClient) -> None:
        super().__init__(service.config)
        self._service = service
        self._away = False
        self._due = 0.0
        self._probe: asyncio.Task[None] | None = None

    @property
    def worker_service_client(self) -> _BridgeServiceClient:
        """See `ServiceClient`."""
        return self._service.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """See `ServiceClient`."""
        self._service.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        """See `ServiceClient`."""
        self._service.update_api_key(api_key)

    async def _rpc_call(
        self,
        rpc: str,
        req: Message,
        resp_type: type[ServiceResponse],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,  # noqa: ASYNC109 (the name of the SDK)
    ) -> ServiceResponse:
        await self._await_probe()
        if self._away:
            raise RPCError("it did not answer a moment ago", RPCStatusCode.UNAVAILABLE, b"")
        try:
            return await self._service._rpc_call(
                rpc, req, resp_type, service=service, retry=retry, metadata=metadata, timeout=timeout
            )
        except RPCError as error:
            # A worker that is away lets a call run out of time as well, and so does a long poll.
            if error.status in _MAY_BE_AWAY:
                self._begin_probe()
                await self._await_probe()
            raise
        except asyncio.CancelledError:
            # The caller's own time ran out. Its next call waits for the probe.
            self._begin_probe()
            raise

    async def _await_probe(self) -> None:
        if self._away and time.monotonic() >= self._due:
            self._begin_probe()
        if self._probe is not None:
            # Until the probe ends where the server is only suspected: a call of its own would take no less.
            await asyncio.wait({self._probe}, timeout=_WAIT_SECONDS if self._away else None)

    def _begin_probe(self) -> None:
        if self._probe is None:
            self._probe = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            self._away = not await self._answers()
        finally:
            self._probe, self._due = None, time.monotonic() + AWAY_SECONDS

    async def _answers(self) -> bool:
        try:
            await self._service.workflow_service.get_system_info(
                GetSystemInfoRequest(), retry=False, timeout=timedelta(seconds=_PROBE_SECONDS)
            )
        except RPCError as error:
            return error.status not in _MAY_BE_AWAY
        return True
