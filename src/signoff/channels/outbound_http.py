"""Sends HTTP to configured addresses: only to hosts of the public internet, or of networks that are allowed.

A name is resolved once, every address behind it is judged, and the connection goes to one of those judged: a name that
points elsewhere a moment later changes nothing. Redirects are not followed, and of an answer's body no more is read
than was asked for: nothing, if nobody says how much.
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
"""Of several addresses of one name, so many are tried."""
_SPECIAL: Final = tuple(ip_network(each) for each in ("192.0.0.0/24", "168.63.129.16/32"))
"""Where clouds tell their machines secrets, at addresses that pass for public."""
_UNICAST: Final = ip_network("2000::/3")
"""All of IPv6 that is given out."""
_TRANSLATED: Final = ip_network("64:ff9b::/96")


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Returns the addresses of a name, as the system gives them. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True)
class ServerAnswer:
    """What a server said. `at` is its clock, if it tells; `body` is empty where nobody asked for one."""

    status: int
    retry_after: float
    at: datetime | None = None
    body: bytes = b""


@dataclass(frozen=True)
class AddressGuard:
    """Judges where a name leads. `allowed` are networks beside the public internet; only they may lack TLS."""

    allowed: Sequence[Network] = ()
    resolve: Resolve = resolve_host

    async def find(self, host: str, port: int, *, secure: bool) -> list[Address]:
        """Returns the addresses behind `host`, in its ASCII form, that are to be tried. Raises `NotDelivered`."""
        try:
            found = await self.resolve(host, port)
        # Python itself refuses a name such as `a..b`, and asks no system.
        except (OSError, UnicodeError):
            raise NotDelivered(f"`{host}` has no address", code="dns", again=True) from None
        # `getaddrinfo` puts a zone behind link-local addresses: `fe80::1%eth0`.
        addresses = [ip_address(each.partition("%")[0]) for each in found]
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
    """Sends to one configured place. `allowed` are networks beside the public internet; only they may lack TLS."""

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
        """Lets go of connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], answer_bytes: int = 0) -> ServerAnswer:
        """Sends `body`; any answer is one. Raises `NotDelivered` where none came, or nobody may be asked.

        `answer_bytes` is how long its body may be; 0 reads none of it. Raises `NotDelivered` for a longer one.
        """
        target = _target(url)
        try:
            # The timeouts of httpx2 are for each step: a server that sends a byte now and then would never be late.
            async with asyncio.timeout(self.seconds):
                secure = target.scheme == "https"
                port = target.port or (443 if secure else 80)
                addresses = await AddressGuard(self.allowed, self.resolve).find(_name(target), port, secure=secure)
                return await self._first(target, addresses, body, headers, answer_bytes)
        except TimeoutError:
            raise NotDelivered(f"`{target.host}` did not answer in time", code="timeout", again=True) from None

    async def _first(
        self,
        target: httpx2.URL,
        addresses: Sequence[Address],
        body: bytes,
        headers: Mapping[str, str],
        answer_bytes: int,
    ) -> ServerAnswer:
        failure: httpx2.TransportError | None = None
        for address in addresses:
            try:
                return await self._post(target, address, body, headers, answer_bytes)
            # Nothing was sent yet, so the next address cannot make it arrive twice.
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
            except httpx2.TransportError as error:
                # It may have arrived: not at the next address as well.
                failure = error
                break
        why = type(failure).__name__
        raise NotDelivered(f"`{target.host}` cannot be reached: {why}", code="connection", again=True) from None

    async def _post(
        self, target: httpx2.URL, address: Address, body: bytes, headers: Mapping[str, str], answer_bytes: int
    ) -> ServerAnswer:
        pinned = target.copy_with(host=str(address))
        given = {**headers, "host": target.netloc.decode("ascii")}
        # The name is what the certificate must hold, though the connection goes to the address.
        extensions = {"sni_hostname": _name(target)}
        request = self._http().build_request("POST", pinned, content=body, headers=given, extensions=extensions)
        # The head alone, and as much of the body as is wanted: it may be without end.
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
            # No proxy of the environment: it would resolve the name again, and reach what it likes.
            # Certificates are another matter: a company's own authority is told by `SSL_CERT_FILE`.
            self._client = httpx2.AsyncClient(
                verify=load_trust(), trust_env=False, follow_redirects=False, timeout=self.seconds
            )
        return self._client


def is_public(address: Address) -> bool:
    """Returns whether an address is one of the public internet, whatever other address is wrapped in it."""
    wrapped = _unwrap(address)
    if wrapped is not None:
        return is_public(wrapped)
    if isinstance(address, IPv6Address):
        # Python calls global whatever is not listed as special, also what is not given out, such as 4000::1.
        return address.is_global and address in _UNICAST
    # `is_global` is true of multicast, and of 192.0.0.192 and 168.63.129.16.
    special = address.is_multicast or address.is_reserved or any(address in each for each in _SPECIAL)
    return address.is_global and not special


def read_networks(written: Sequence[str]) -> tuple[Network, ...]:
    """Returns networks such as `10.0.0.0/8`. Raises `ValueError`."""
    return tuple(ip_network(each) for each in written)


def read_date(written: str) -> datetime | None:
    """Returns the moment of a `Date` header (aware), or None for anything else."""
    try:
        moment = parsedate_to_datetime(written)
    except ValueError:
        return None
    # For `-0000` Python gives no zone; HTTP means UTC always (RFC 9110, section 5.6.7).
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def _read_body(response: httpx2.Response, most: int) -> bytes:
    """Reads a body of `most` bytes at most. Raises `NotDelivered` for a longer one, `httpx2.TransportError`."""
    content = bytearray()
    # As it was sent: what is packed could be many times longer than what came.
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
        raise NotDelivered("what is to be asked is no address", code="address", again=False)
    return target


def _name(target: httpx2.URL) -> str:
    """Returns the host as it is asked for on the wire: names beyond ASCII in their ASCII form."""
    return target.raw_host.decode("ascii")


def _unwrap(address: Address) -> Address | None:
    """Returns the IPv4 address that an IPv6 one stands for, which is where its packets go."""
    if isinstance(address, IPv4Address):
        return None
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
