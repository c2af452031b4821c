"""Reads requests of A2A's JSON-RPC binding, version 1.0."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from signoff.contracts.requests import sentence
from signoff.formats.bounds import bounds_problem
from signoff.formats.json_reader import NotJson, read_json
from signoff.plugins.a2a.rpc_error import INVALID_PARAMS, INVALID_REQUEST, PARSE, VERSION, RpcError

PROTOCOL: Final = "1.0"
"""The supported version."""
PAGE_TASKS: Final = 50
_ID_CHARS: Final = 200
_JSON_RPC: Final = "2.0"


class RpcParams(BaseModel):
    """Parameters of a method. Unknown fields are ignored, as the specification requires (5.7)."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    tenant: str = ""
    """A routing identifier; the card names none."""


class PeerPart(RpcParams):
    """A part of a peer's message."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = None
    media_type: str = ""


class PeerMessage(RpcParams):
    """A message of a peer."""

    message_id: str = Field(min_length=1, max_length=_ID_CHARS)
    context_id: str = ""
    task_id: str = ""
    role: Literal["ROLE_USER"]
    parts: list[PeerPart] = Field(min_length=1)


class SendOptions(RpcParams):
    """The response that a peer wants."""

    accepted_output_modes: list[str] = []
    task_push_notification_config: Any = None
    return_immediately: bool = False


class SendParams(RpcParams):
    """Parameters of a message."""

    message: PeerMessage
    configuration: SendOptions = SendOptions()


class TaskParams(RpcParams):
    """The name of one task."""

    id: str = Field(min_length=1)


class ListParams(RpcParams):
    """Filters and page of a list of tasks."""

    context_id: str = ""
    status: str = ""
    page_size: int = Field(default=PAGE_TASKS, ge=1, le=100)
    page_token: str = ""
    status_timestamp_after: AwareDatetime | None = None
    include_artifacts: bool = False


class RpcRequest(NamedTuple):
    """One request."""

    id: str | int | None
    method: str
    params: Any


_Params = TypeVar("_Params", bound=RpcParams)


def parse_request(body: bytes) -> RpcRequest:
    """Read a request's envelope. Raises `RpcError`."""
    try:
        found = read_json(body)
    except NotJson as error:
        raise RpcError(PARSE, f"the body {error}") from None
    if not isinstance(found, dict):
        raise RpcError(INVALID_REQUEST, "send one request, a JSON object; batches are not taken")
    method = found.get("method")
    if found.get("jsonrpc") != _JSON_RPC or not isinstance(method, str) or bounds_problem(method):
        raise RpcError(INVALID_REQUEST, f"a request has `jsonrpc`, which is `{_JSON_RPC}`, and a `method`")
    return RpcRequest(request_id(found), method, found.get("params", {}))


def request_id(found: Mapping[str, Any]) -> str | int:
    """Raise `RpcError` for a request without an id: a notification would get no response."""
    given = found.get("id")
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise RpcError(INVALID_REQUEST, "a request has an `id`, a text or a whole number")
    # The id is sent back: one that JSON cannot carry would make our response fail.
    if bounds_problem(given) or (isinstance(given, str) and len(given) > _ID_CHARS):
        raise RpcError(INVALID_REQUEST, f"an `id` is Unicode of at most {_ID_CHARS} characters, or within ±(2^53-1)")
    return given


def parse_params(request: RpcRequest, kind: type[_Params]) -> _Params:
    """Raises `RpcError`."""
    if why := bounds_problem(request.params):
        raise RpcError(INVALID_PARAMS, f"the parameters cannot be taken: {why}")
    try:
        params = kind.model_validate(request.params)
    except ValidationError as error:
        raise RpcError(INVALID_PARAMS, sentence(error.errors())) from None
    if params.tenant:
        raise RpcError(INVALID_PARAMS, "the card names no `tenant`: the token identifies the peer")
    return params


def check_version(asked: str) -> None:
    """Raise `RpcError` for an unsupported version. Without a header it is 0.3, by the specification (3.6.2)."""
    if ".".join(asked.strip().split(".")[:2]) != PROTOCOL:
        words = f"`{asked[:20]}`" if asked else "0.3, which no `A2A-Version` means,"
        raise RpcError(VERSION, f"version {words} is not spoken here; send `A2A-Version: {PROTOCOL}`")
