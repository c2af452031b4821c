"""Sends HTTP to configured addresses: only to hosts of the public internet, or of allowed networks.

A name is resolved once, its addresses are checked, and the connection goes to a checked address, even if the name
changes a moment later. Redirects are not followed. A response's body is read only up to the requested length: not at
all by default.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from types import TracebackType
from typing import Final, Self, TypeAlias

import httpx2

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.vendor_http import retry_after
from signoff.keys.tls_trust import load_trust

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_LAST_PORT: Final = 65_535
_TRIED: Final = 3
"""The most addresses of one name that are tried."""
_SPECIAL: Final = tuple(ip_network(each) for each in ("192.0.0.0/24", "168.63.129.16/32"))
"""Networks of clouds' metadata services, which give machines secrets, at addresses that look public."""
_UNICAST: Final = ip_network("2000::/3")
"""The allocated part of IPv6."""
_TRANSLATED: Final = ip_network("64:ff9b::/96")


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Raises `OSError`."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


@dataclass(frozen=True)
class ServerAnswer:
    """A server's response. `at` is the server's time, if known. `body` is empty unless requested."""

    status: int
    retry_after: float
    at: datetime | None = None
    body: bytes = b""


@dataclass(frozen=True)
class AddressGuard:
    """Checks a name's addresses. `allowed` are networks besides the public internet; only they may lack TLS."""

    allowed: Sequence[Network] = ()
    resolve: Resolve = resolve_host

    async def find(self, host: str, port: int, *, secure: bool) -> list[Address]:
        """Return the addresses of `host`, in its ASCII form, that may be tried. Raises `NotDelivered`."""
        try:
            texts = await self.resolve(host, port)
        # Python itself refuses a name such as `a..b` without asking the system.
        except (OSError, UnicodeError):
            raise NotDelivered(f"`{host}` has no address", code="dns", again=True) from None
        # `getaddrinfo` appends a zone to link-local addresses: `fe80::1%eth0`.
        addresses = [ip_address(each.partition("%")[0]) for each in texts]
        good = [each for each in addresses if self._may_be_asked(each, secure=secure)]
        if not good:
            why = "it is no host of the public internet, or has no TLS; see the option `allow_networks`"
            raise NotDelivered(f"`{host}` may not be asked: {why}", code="address", again=False)
        return good[:_TRIED]

    def _may_be_asked(self, address: Address, *, secure: bool) -> bool:
        if any(address.version == each.version and address in each for each in self.allowed):
            return True
        return secure and is_public(address)


@dataclass
class GuardedHttp:
    """Sends to one configured address. `allowed` are networks besides the public internet; only they may lack TLS."""

    allowed: Sequence[Network] = ()
    seconds: float = 10.0
    resolve: Resolve = resolve_host
    _client: httpx2.AsyncClient | None = field(default=None, init=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], answer_bytes: int = 0) -> ServerAnswer:
        """Send `body` and return the response of any status.

        `answer_bytes` limits the response's body; 0 reads none of it. Raises `NotDelivered` without a response, for a
        longer body or a refused host.
        """
        return await self._send("POST", url, body, headers, answer_bytes)

    async def get(self, url: str, headers: Mapping[str, str], answer_bytes: int) -> ServerAnswer:
        """As `post`, without a body."""
        return await self._send("GET", url, b"", headers, answer_bytes)

    async def _send(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], answer_bytes: int
    ) -> ServerAnswer:
        target = _target(url)
        try:
            # The timeouts of httpx2 apply to each step: a server that sends single bytes would never time out.
            async with asyncio.timeout(self.seconds):
                secure = target.scheme == "https"
                port = target.port or (443 if secure else 80)
                addresses = await AddressGuard(self.allowed, self.resolve).find(_name(target), port, secure=secure)
                return await self._first(method, target, addresses, body, headers, answer_bytes)
        except TimeoutError:
            raise NotDelivered(f"`{target.host}` did not answer in time", code="timeout", again=True) from None

    async def _first(
        self,
        method: str,
        target: httpx2.URL,
        addresses: Sequence[Address],
        body: bytes,
        headers: Mapping[str, str],
        answer_bytes: int,
    ) -> ServerAnswer:
        failure: httpx2.TransportError | None = None
        for address in addresses:
            try:
                return await self._request(method, target, address, body, headers, answer_bytes)
            # Nothing was sent yet, so a second address cannot deliver it twice.
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
            except httpx2.TransportError as error:
                # It may have arrived: do not send it to the next address as well.
                failure = error
                break
        why = type(failure).__name__
        raise NotDelivered(f"`{target.host}` cannot be reached: {why}", code="connection", again=True) from None

    async def _request(
        self,
        method: str,
        target: httpx2.URL,
        address: Address,
        body: bytes,
        headers: Mapping[str, str],
        answer_bytes: int,
    ) -> ServerAnswer:
        pinned = target.copy_with(host=str(address))
        request_headers = {**headers, "host": target.netloc.decode("ascii")}
        # The certificate must have the name, although the connection goes to the address.
        extensions = {"sni_hostname": _name(target)}
        request = self._http().build_request(
            method, pinned, content=body, headers=request_headers, extensions=extensions
        )
        # Read only the header and the requested part of the body, which may be endless.
        response = await self._http().send(request, stream=True)
        try:
            content = await _read_body(response, answer_bytes) if answer_bytes else b""
        finally:
            await response.aclose()
        response_headers = response.headers
        return ServerAnswer(
            response.status_code,
            retry_after(response_headers.get("retry-after", "")),
            read_date(response_headers.get("date", "")),
            content,
        )

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            # Ignore the environment's proxy: it would resolve the name again and could reach any host. `load_trust`
            # still reads `SSL_CERT_FILE`, for a company's own certificate authority.
            # No connection is used twice: connections are kept by address, and a certificate is checked for one host.
            self._client = httpx2.AsyncClient(
                verify=load_trust(),
                trust_env=False,
                follow_redirects=False,
                timeout=self.seconds,
                limits=httpx2.Limits(max_keepalive_connections=0),
            )
        return self._client


def is_public(address: Address) -> bool:
    """Also judges an IPv4 address embedded in `address`."""
    wrapped = _unwrap(address)
    if wrapped is not None:
        return is_public(wrapped)
    if isinstance(address, IPv6Address):
        # Python's `is_global` is true for any unlisted address, even unallocated ones such as 4000::1.
        return address.is_global and address in _UNICAST
    # `is_global` is true for multicast, and for 192.0.0.192 and 168.63.129.16.
    special = address.is_multicast or address.is_reserved or any(address in each for each in _SPECIAL)
    return address.is_global and not special


def read_networks(written: Sequence[str]) -> tuple[Network, ...]:
    """Parse networks such as `10.0.0.0/8`. Raises `ValueError`."""
    return tuple(ip_network(each) for each in written)


def read_date(written: str) -> datetime | None:
    """Return the time of a `Date` header (aware), or None for anything else."""
    try:
        moment = parsedate_to_datetime(written)
    except ValueError:
        return None
    # Python returns no zone for `-0000`; HTTP always means UTC (RFC 9110, section 5.6.7).
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def _read_body(response: httpx2.Response, most: int) -> bytes:
    """Raises `NotDelivered` for a body of more than `most` bytes, and `httpx2.TransportError`."""
    content = bytearray()
    # Read the raw bytes: a compressed body could unpack to many times its length.
    async for part in response.aiter_raw():
        content += part
        if len(content) > most:
            raise NotDelivered("the answer is too long", code="too_long", again=False)
    return bytes(content)


def _target(url: str) -> httpx2.URL:
    try:
        target = httpx2.URL(url)
    except httpx2.InvalidURL:
        target = None
    if target is None or (target.port or 0) > _LAST_PORT:
        raise NotDelivered("the target is not an address", code="address", again=False)
    return target


def _name(target: httpx2.URL) -> str:
    """Return the host as on the wire: names beyond ASCII in their ASCII form."""
    return target.raw_host.decode("ascii")


def _unwrap(address: Address) -> Address | None:
    """Return the IPv4 address embedded in an IPv6 address: its packets go there."""
    if isinstance(address, IPv4Address):
        return None
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
