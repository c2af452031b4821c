"""Takes what vendors bring: it is kept, acknowledged at once and read later.

Whoever comes needs no sign-in: the channel proves who it is, or they are refused.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.envelopes import InboundRequest
from signoff.channels.inbound.receiver import InboundReceiver
from signoff.contracts.errors import NotFound, Unavailable
from signoff.gateway.auth.dependencies import VENDOR, Deps
from signoff.gateway.deps import GatewayDeps

_AGAIN_SECONDS: Final = "2"


router = APIRouter(include_in_schema=False)


async def receiver_from_request(request: Request) -> InboundReceiver:
    """Returns the receiver of what vendors bring. Raises `NotFound` where there is no channel."""
    receiver: InboundReceiver | None = request.app.state.receiver
    if receiver is None:
        raise NotFound("there is no channel here")
    return receiver


Receiver = Annotated[InboundReceiver, Depends(receiver_from_request)]


# A forger is told nothing, not even why. A `GET` is there for vendors that check an address by it.
@router.api_route("/channels/{name}", methods=["POST", "GET"], dependencies=[VENDOR])
async def take_message(name: str, request: Request, deps: Deps, receiver: Receiver) -> Response:
    """Takes one message of a vendor. When this answers that it is taken, it is kept."""
    try:
        received = await receiver.take(name, await _raw(request, deps))
    except Forged:
        return Response(status_code=401)
    except Malformed:
        return Response(status_code=400)
    except NotFound:
        return Response(status_code=404)
    except Unavailable:
        return Response(status_code=503, headers={"retry-after": _AGAIN_SECONDS})
    return Response(received.body, received.status, media_type=received.media_type)


@router.head("/channels/{name}", dependencies=[VENDOR])
async def look_for_channel(name: str, receiver: Receiver) -> Response:
    """Says whether there is such a channel; scanners ask so, and change nothing."""
    return Response(status_code=404 if receiver.max_bytes(name) is None else 200)


async def _raw(request: Request, deps: GatewayDeps) -> InboundRequest:
    headers: dict[str, str] = {}
    for key, value in request.headers.items():
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    query = request.url.query
    return InboundRequest(
        body=await request.body(),
        headers=headers,
        query=dict(request.query_params),
        method=request.method,
        # As vendors know it and sign it: what a proxy makes of it is not what they called.
        url=f"{deps.settings.public_url}{request.url.path}{'?' if query else ''}{query}",
        at=deps.clock(),
    )
