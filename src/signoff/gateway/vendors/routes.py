"""Routes for vendors' messages: store each message, acknowledge it at once, read it later.

The routes need no sign-in. The channel authenticates the sender or refuses the message.
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
    """Raise `NotFound` if there is no channel."""
    receiver: InboundReceiver | None = request.app.state.receiver
    if receiver is None:
        raise NotFound("there is no channel here")
    return receiver


Receiver = Annotated[InboundReceiver, Depends(receiver_from_request)]


# A forger gets no reason for the refusal. Some vendors verify a callback address with a `GET`.
@router.api_route("/channels/{name}", methods=["POST", "GET"], dependencies=[VENDOR])
async def take_message(name: str, request: Request, deps: Deps, receiver: Receiver) -> Response:
    """Accept one message from a vendor. The message is stored before this route confirms it."""
    try:
        received = await receiver.take(name, await _raw(request, deps), waits=True)
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
    """Answer 200 if the channel exists, else 404. Changes nothing: link scanners send `HEAD`."""
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
        # Vendors sign the public URL that they call, not the URL after a proxy has rewritten it.
        url=f"{deps.settings.public_url}{request.url.path}{'?' if query else ''}{query}",
        at=deps.clock(),
    )
