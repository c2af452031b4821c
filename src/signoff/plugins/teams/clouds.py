"""The addresses of Teams in Microsoft's clouds, as Microsoft's SDKs publish them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

Cloud: TypeAlias = Literal["public", "gcc_high", "dod"]
"""`public` includes the Government Community Cloud without `High`."""


class CloudAddresses(NamedTuple):
    """The addresses of one cloud."""

    login_url: str
    scope: str
    metadata_url: str
    issuer: str
    services: tuple[str, ...]
    """The origins of the connector."""


_GOVERNMENT: Final = CloudAddresses(
    login_url="https://login.microsoftonline.us",
    scope="https://api.botframework.us/.default",
    metadata_url="https://login.botframework.azure.us/v1/.well-known/openidconfiguration",
    issuer="https://api.botframework.us",
    services=("https://smba.infra.gov.teams.microsoft.us",),
)
CLOUDS: Final[Mapping[Cloud, CloudAddresses]] = MappingProxyType(
    {
        "public": CloudAddresses(
            login_url="https://login.microsoftonline.com",
            scope="https://api.botframework.com/.default",
            metadata_url="https://login.botframework.com/v1/.well-known/openidconfiguration",
            issuer="https://api.botframework.com",
            services=(
                "https://smba.trafficmanager.net",
                "https://smba.onyx.prod.teams.trafficmanager.net",
                "https://smba.infra.gcc.teams.microsoft.com",
            ),
        ),
        "gcc_high": _GOVERNMENT,
        "dod": _GOVERNMENT._replace(services=("https://smba.infra.dod.teams.microsoft.us",)),
    }
)


def is_foreign(cloud: Cloud, address: str) -> bool:
    """Return whether an address is on a host of other clouds alone."""
    host = _host(address)
    return host not in _hosts(CLOUDS[cloud]) and any(host in _hosts(each) for each in CLOUDS.values())


def _hosts(cloud: CloudAddresses) -> set[str]:
    return set(map(_host, (cloud.login_url, cloud.metadata_url, *cloud.services)))


def _host(address: str) -> str:
    # A name with the final dot of DNS is the same host.
    return (urlsplit(address).hostname or "").removesuffix(".")
