"""The addresses at which vendors bring what people say: kept, acknowledged at once, heard later."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from signoff.channels.base import Forged, Malformed
from signoff.channels.envelopes import Raw
from signoff.channels.inbound.receiver import Intake
from signoff.contracts.errors import NotFound, Unavailable
from signoff.gateway.deps import GatewayDeps

_AGAIN_SECONDS: Final = "2"


class ChannelDoors:
    """Handlers of `/channels/...`. Whoever knocks needs no sign-in: the channel proves who it is, or they are refused.

    A forger is told nothing, not even why.
    """

    def __init__(self, deps: GatewayDeps, intake: Intake) -> None:
        self._deps = deps
        self._intake = intake

    def router(self) -> APIRouter:
        """The routes; only a `POST` says something, and a `GET` is there for vendors that check an address by it."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/channels/{name}", self.take, methods=["POST", "GET"])
        router.add_api_route("/channels/{name}", self.look, methods=["HEAD"])
        return router

    async def take(self, request: Request, name: str) -> Response:
        """One message of a vendor. When this answers that it is taken, it is kept."""
        try:
            received = await self._intake.take(name, await self._raw(request))
        except Forged:
            return Response(status_code=401)
        except Malformed:
            return Response(status_code=400)
        except NotFound:
            return Response(status_code=404)
        except Unavailable:
            return Response(status_code=503, headers={"retry-after": _AGAIN_SECONDS})
        return Response(received.body, received.status, media_type=received.media_type)

    async def look(self, name: str) -> Response:
        """Whether there is such a channel; scanners ask so, and change nothing."""
        return Response(status_code=404 if self._intake.room(name) is None else 200)

    async def _raw(self, request: Request) -> Raw:
        headers: dict[str, str] = {}
        for key, value in request.headers.items():
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        query = request.url.query
        return Raw(
            body=await request.body(),
            headers=headers,
            query=dict(request.query_params),
            method=request.method,
            # As vendors know it and sign it: what a proxy makes of it is not what they called.
            url=f"{self._deps.settings.public_url}{request.url.path}{'?' if query else ''}{query}",
            at=self._deps.clock(),
        )
