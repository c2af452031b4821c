"""Sends the requests of the MCP SDK's client to guarded addresses alone, and bounds what is answered."""

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import AddressGuard
from signoff.contracts.limits import MIB
from signoff.keys.tls_trust import load_trust

ANSWER_BYTES: Final = 8 * MIB
"""The largest answer of one request; a stream of events counts as one."""
PLAIN: Final = {"accept-encoding": "identity"}
"""Headers of each request: a small answer may unpack to gigabytes, and its bytes are counted as they come."""
_SERVER_FAULT: Final = 500


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects to addresses that `guard` lets through, and to no others, whatever a name leads to a moment later.

    Once `connected` is set an HTTP 5xx ends the connection: the SDK would tell it as the server's word on a call, and
    it may be that of a proxy which knows nothing of what became of it.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        # No proxy of the environment: it would resolve the name again, and reach what it likes.
        self._inner = httpx2.AsyncHTTPTransport(verify=load_trust(), trust_env=False)
        self.connected = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See `httpx2.AsyncBaseTransport`."""
        url = request.url
        host, secure = url.raw_host.decode("ascii"), url.scheme == "https"
        try:
            addresses = await self._guard.find(host, url.port or (443 if secure else 80), secure=secure)
        except NotDelivered as error:
            raise httpx2.ConnectError(error.message, request=request) from None
        failure: httpx2.TransportError | None = None
        for address in addresses:
            # The host header was made of the name; the certificate must hold it as well.
            request.url = url.copy_with(host=str(address))
            request.extensions = {**request.extensions, "sni_hostname": host}
            try:
                response = await self._inner.handle_async_request(request)
            # Nothing was sent yet, so the next address cannot make it arrive twice.
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
                continue
            finally:
                # Redirects and answers are judged by the name.
                request.url = url
            return await self._bound(request, response)
        raise failure or httpx2.ConnectError(f"`{host}` has no address", request=request)

    async def _bound(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        if self.connected and response.status_code >= _SERVER_FAULT:
            await response.aclose()
            raise httpx2.RemoteProtocolError(f"HTTP {response.status_code}", request=request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("answered compressed, unasked", request=request)
        stream = response.stream
        # The stream of what a server says unasked is open for as long as the connection.
        if isinstance(stream, httpx2.AsyncByteStream) and request.method == "POST":
            response.stream = _BoundedStream(stream)
        return response

    async def aclose(self) -> None:
        """Lets go of connections."""
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for piece in self._inner:
            read += len(piece)
            if read > ANSWER_BYTES:
                raise httpx2.ReadError(f"answered with more than {ANSWER_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
