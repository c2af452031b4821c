"""Connects to any Temporal server, and checks or creates its namespace's requirements."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.service import GrpcCompression, RPCError, RPCStatusCode

from signoff.contracts.errors import ConfigError, ServerUnavailable
from signoff.contracts.names import SA_ACTOR, SA_STATE, SA_TENANT, SA_TOOL
from signoff.temporal.converter import encrypting_converter
from signoff.temporal.encryption import Encryption

DEFAULT_ADDRESS: Final = "127.0.0.1:7233"
DEFAULT_NAMESPACE: Final = "default"
LOOPBACK: Final = "127.0.0.1"
CONNECT_SECONDS: Final = 5.0
SEARCH_ATTRIBUTES: Final[Mapping[str, str]] = {
    SA_STATE: "Keyword",
    SA_ACTOR: "Keyword",
    SA_TENANT: "Keyword",
    SA_TOOL: "KeywordList",
}
"""Maps search attribute names to types, as written by the `temporal` program."""
_TYPES: Final[Mapping[str, IndexedValueType.ValueType]] = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}


async def connect(
    address: str | None = None,
    namespace: str | None = None,
    timeout_seconds: float = CONNECT_SECONDS,
    *,
    encryption: Encryption | None = None,
) -> Client:
    """Connect to `address`, else the server of `TEMPORAL_*` and Temporal's own file, else the local one.

    `encryption` is the installation's. Without it, payloads are plain. Raises `ConfigError` for an unreadable
    configuration, `ServerUnavailable` if no server answers in time.
    """
    config = _read_config()
    if address:
        config["target_host"] = address
    if namespace:
        config["namespace"] = namespace
    config.setdefault("target_host", DEFAULT_ADDRESS)
    return await dial(config, timeout_seconds, encryption)


def configured_namespace() -> str:
    """Read `TEMPORAL_*` and Temporal's own file. Raises `ConfigError`."""
    return str(_read_config().get("namespace", DEFAULT_NAMESPACE))


async def check_server(client: Client) -> None:
    """Check that the namespace exists and has Signoff's search attributes.

    A (hosted) server that permits no listing counts as having them. Raises `ConfigError` with the command for the
    repair, `ServerUnavailable` if the server does not answer.
    """
    found = await _known_attributes(client)
    if found is None:
        return
    for name, kind in SEARCH_ATTRIBUTES.items():
        if found.get(name, _TYPES[kind]) != _TYPES[kind]:
            raise ConfigError(
                f"search attribute `{name}` of namespace `{client.namespace}` must be a {kind} but has another type: "
                "use another namespace, or remove it with "
                f"`temporal operator search-attribute remove --namespace {client.namespace} --name {name}`",
                field=name,
            )
    missing = [name for name in SEARCH_ATTRIBUTES if name not in found]
    if missing:
        pairs = " ".join(f"--name {name} --type {SEARCH_ATTRIBUTES[name]}" for name in missing)
        raise ConfigError(
            f"namespace `{client.namespace}` lacks the search attributes {', '.join(missing)}: run "
            f"`temporal operator search-attribute create --namespace {client.namespace} {pairs}`",
            field=missing[0],
        )


async def ensure_search_attributes(client: Client) -> None:
    """Create missing search attributes, then check as `check_server`."""
    found = await _known_attributes(client) or {}
    missing = {name: _TYPES[kind] for name, kind in SEARCH_ATTRIBUTES.items() if name not in found}
    if missing:
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        try:
            await client.operator_service.add_search_attributes(request)
        except RPCError as error:
            raise _server_error(error, client) from None
    await check_server(client)


async def set_retention(client: Client, days: int) -> None:
    """Raises `ServerUnavailable` on refusal."""
    wanted = timedelta(days=days)
    config = NamespaceConfig()
    config.workflow_execution_retention_ttl.FromTimedelta(wanted)
    update = UpdateNamespaceRequest(namespace=client.namespace, config=config)
    try:
        await client.workflow_service.update_namespace(update)
        kept = await read_retention(client)
    except RPCError as error:
        raise _server_error(error, client) from None
    if kept != wanted:
        raise ServerUnavailable(f"the server keeps finished turns for {kept.days} days and not for {days}")


async def read_retention(client: Client) -> timedelta:
    """Raises `RPCError`."""
    reply = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    return reply.config.workflow_execution_retention_ttl.ToTimedelta()


def _read_config() -> ClientConnectConfig:
    try:
        return ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigError(f"Temporal's connection settings (`TEMPORAL_*`) cannot be read: {_line(error)}") from None


async def dial(config: ClientConnectConfig, timeout_seconds: float, encryption: Encryption | None) -> Client:
    """Raises as `connect`."""
    target = config.get("target_host", DEFAULT_ADDRESS)
    codec = None if encryption is None else encryption.codec(config.get("namespace", DEFAULT_NAMESPACE))
    try:
        async with asyncio.timeout(timeout_seconds):
            return await Client.connect(
                **config, data_converter=encrypting_converter(codec), grpc_compression=_compression(target)
            )
    except ValueError as error:
        if "cert" in str(error):
            raise ConfigError(
                f"the certificates for Temporal's server cannot be used ({_line(error)}): correct the variables "
                "TEMPORAL_TLS_*",
                field="TEMPORAL_TLS",
            ) from None
        raise ConfigError(
            f"`{target}` is no address of a Temporal server ({_line(error)}): write it as host:port", value=target
        ) from None
    except (RuntimeError, TimeoutError) as error:
        # The SDK has one error for both. Only its message distinguishes a refused connection from another service.
        if "after connection" in str(error):
            raise ServerUnavailable(
                f"what answers at `{target}` is no Temporal server or does not let us in: check TEMPORAL_ADDRESS, "
                "TEMPORAL_API_KEY and TEMPORAL_TLS",
                reason=_line(error),
            ) from None
        raise ServerUnavailable(
            f"no Temporal server answers at `{target}`: start one with `signoff dev`, or name another with --address "
            "or TEMPORAL_ADDRESS",
            reason=_line(error),
        ) from None


def _compression(target: str) -> GrpcCompression:
    """Compress nothing on this machine: it took a twelfth of both processes' time in each turn."""
    return GrpcCompression.NONE if target.rpartition(":")[0] in (LOOPBACK, "localhost") else GrpcCompression.GZIP


async def _known_attributes(client: Client) -> Mapping[str, IndexedValueType.ValueType] | None:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        reply = await client.operator_service.list_search_attributes(request)
    except RPCError as error:
        # Hosted servers reserve this for administrators: without the list, missing attributes cannot be detected.
        if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
            return None
        raise _server_error(error, client) from None
    return reply.custom_attributes


def _server_error(error: RPCError, client: Client) -> ConfigError | ServerUnavailable:
    if error.status == RPCStatusCode.NOT_FOUND:
        return ConfigError(
            f"there is no namespace `{client.namespace}`: create it with "
            f"`temporal operator namespace create --namespace {client.namespace} --retention 90d`, or name another",
            field="namespace",
            value=client.namespace,
        )
    return ServerUnavailable(f"the Temporal server did not do as asked: {_line(error)}")


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
