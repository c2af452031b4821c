"""Temporal's codec server protocol: `/decode` and `/encode`, below any path.

Masks secret arguments in the payloads that it decrypts for Temporal's UI and command line.
"""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from starlette.responses import JSONResponse
from temporalio.api.common.v1 import Payload, Payloads

from signoff.approvals.audit_events import admin_entry
from signoff.approvals.redaction import redact_value, secret_values
from signoff.audit.log import AuditLog
from signoff.contracts.errors import BadRequest, Refused
from signoff.contracts.limits import CODEC_BODY_BYTES
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.responses import Health
from signoff.engine.kill_switch import AUDITOR, OPERATOR
from signoff.gateway.approvals.secret_masks import mask_text, masked_args
from signoff.gateway.auth.authenticator import Authenticator
from signoff.gateway.auth.caller import AuthenticatedCaller
from signoff.gateway.auth.dependencies import OPEN, Access, Deps
from signoff.gateway.read_access import reads_all
from signoff.gateway.transport.json_route import read_body
from signoff.registry.catalog import Catalog
from signoff.temporal.encryption import PLACE_BYTES, EncryptionCodec, is_encrypted

_JSON: Final = b"json/"
_DERIVED: Final = frozenset(("digest", "sha256", "seal", "preview", "args_preview", "question_hash", "signature"))
"""Fields that would let a reader guess a masked value and check the guess."""
_BINDS: Final = frozenset(("digest", "question_hash", "action", "recent", "doubt_of", "signature"))
"""Fields that hash or sign arguments in messages without the arguments, such as gate decisions."""
_BINDING: Final = re.compile(r"[0-9a-f]{8,64}|[A-Za-z0-9+/]{86}==")
_WHOLE: Final = frozenset(("edited_args", "provider"))
"""Fields that may hold arguments without naming their tool."""
_CONTENT: Final = frozenset(("inline", "blob"))
_MAX_LEVELS: Final = 100
"""Nesting limit of a payload: three times the limit of arguments. Deeper payloads are masked whole."""
_NESTS: Final = (Mapping, list)
_TOO_DEEP: Final = mask_text(None)

router = APIRouter(tags=["codec"])
PAYLOADS: Final = 2_000
"""Most payloads in one request."""
_WORKFLOWS_PER_ENTRY: Final = 50


class CodecAccess(Access):
    """Access for operators and auditors of the installation, by a personal token or the cookie of a browser.

    They must belong to the default tenant. A payload does not name its tenant, so a reader of one can read all.
    """

    @property
    def body_bytes(self) -> int:
        return CODEC_BODY_BYTES

    async def _admit(self, request: Request) -> None:
        authenticator: Authenticator = request.app.state.authenticator
        sent = "authorization" in request.headers
        caller = await authenticator.identify(request, "token" if sent else "cookie")
        authenticator.require(caller, "read")
        deps: Any = request.app.state.deps
        if caller is not None and not _decrypts(caller, development=deps.development):
            raise Refused(
                f"decrypting takes the role `{AUDITOR}` or `{OPERATOR}` in the tenant `{DEFAULT_TENANT}`",
                code="not_allowed",
            )


CodecReader = Annotated[AuthenticatedCaller | None, Depends(CodecAccess())]
"""The caller of a route that decrypts or encrypts. `None` without a caller (see `Authenticator.identify`)."""


@router.get("/healthz", summary="Whether this process answers", dependencies=[OPEN])
async def health() -> Health:
    """Reports only that this process answers."""
    return Health()


@router.post("/decode", summary="Decrypt payloads")
@router.post("/{path:path}/decode", include_in_schema=False)
async def decode(request: Request, deps: Deps, caller: CodecReader) -> JSONResponse:
    """Decrypts payloads and masks their secret arguments. Each request is in the audit log before the response."""
    codec = _codec(request)
    payloads = await _read(request, codec)
    person = None if caller is None else caller.person
    places = list(dict.fromkeys(each.data[:PLACE_BYTES].hex() for each in payloads if is_encrypted(each)))
    now = deps.clock()
    # Record every workflow, in several entries if needed: a caller could put made-up workflows first to hide others.
    entries = [
        admin_entry(
            DEFAULT_TENANT,
            "payloads decrypted",
            "" if person is None else person.id,
            now,
            channel="codec",
            payloads=len(payloads),
            workflows=places[begin : begin + _WORKFLOWS_PER_ENTRY],
        )
        for begin in range(0, max(1, len(places)), _WORKFLOWS_PER_ENTRY)
    ]
    # Record before responding: if the audit log cannot be written, show nothing.
    await AuditLog(deps.store).append(entries)
    decoded = await codec.decode(payloads)
    # Mask in a thread: many secrets and texts take seconds, which would block all other requests.
    return _answer(await asyncio.to_thread(mask_payloads, decoded, deps.catalog))


@router.post("/encode", summary="Encrypt payloads")
@router.post("/{path:path}/encode", include_in_schema=False)
async def encode(request: Request, caller: CodecReader) -> JSONResponse:
    """Encrypts payloads that Temporal's command line or UI sends to a workflow."""
    codec = _codec(request)
    return _answer(await codec.encode(await _read(request, codec)))


async def _read(request: Request, codec: EncryptionCodec) -> list[Payload]:
    named = request.headers.get("x-namespace", codec.namespace)
    if named != codec.namespace:
        raise BadRequest(f"this codec server decrypts the namespace `{codec.namespace}` alone")
    body = read_body(await request.body())
    try:
        # The protobuf parser would accept an empty list as an empty message.
        message = ParseDict(body, Payloads()) if isinstance(body, dict) else None
    except (ParseError, ValueError, RecursionError):
        message = None
    if message is None:
        raise BadRequest('a request is the JSON of payloads: `{"payloads": [...]}`')
    if len(message.payloads) > PAYLOADS:
        raise BadRequest(f"a request brings at most {PAYLOADS} payloads")
    return list(message.payloads)


def _codec(request: Request) -> EncryptionCodec:
    codec: EncryptionCodec = request.app.state.codec
    return codec


def _answer(payloads: Sequence[Payload]) -> JSONResponse:
    return JSONResponse(MessageToDict(Payloads(payloads=payloads)))


def _decrypts(caller: AuthenticatedCaller, *, development: bool) -> bool:
    return caller.person.tenant == DEFAULT_TENANT and reads_all(caller.person, development=development)


def mask_payloads(payloads: Sequence[Payload], catalog: Catalog) -> list[Payload]:
    """Mask every call's secret arguments, and their texts everywhere.

    If the catalog lacks a call's tool, masks all arguments of the call, because any could be secret. Masks the whole of
    JSON that is nested too deeply. Payloads that are not JSON stay unchanged: Signoff writes none.
    """
    documents = [_read_document(each) for each in payloads]

    def secret_names(tool: str) -> tuple[str, ...] | None:
        declared = catalog.tools_named(tool)
        if not declared:
            return () if tool == "respond" else None
        # Several tools may share the name. Mask every argument that any of them masks.
        return tuple(sorted({name for each in declared for name in each.masked_arguments}))

    texts: set[str] = set()
    for document in documents:
        for tool, args in _calls(document):
            texts |= secret_values(args, secret_names(tool) or ())
    masked = _Masked(secret_names, frozenset(texts))
    return [_mask_payload(each, document, masked) for each, document in zip(payloads, documents, strict=True)]


class _Masked:
    def __init__(self, names: Callable[[str], tuple[str, ...] | None], texts: frozenset[str]) -> None:
        self._names = names
        self._texts = texts

    def of(self, document: Any) -> Any:
        return redact_value(self._without_arguments(document), self._texts)

    def _without_arguments(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._without_arguments(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        called = "args" in value or "args_preview" in value
        names = self._names(str(value.get("tool", ""))) if called else ()
        return {key: self._field(key, each, names, called=called) for key, each in value.items()}

    def _field(self, key: str, value: Any, names: tuple[str, ...] | None, *, called: bool) -> Any:
        if key in _WHOLE and value is not None:
            return mask_text(None)
        if key == "args" and names != ():
            return _masked_content(value, names)
        # The hashed arguments are in another payload, which may be missing from this request.
        if key in _BINDS and not called and _is_binding(value):
            return mask_text(None)
        # Mask these fields if any payload has a secret: a permit holds the digest of arguments in another payload.
        if key in _DERIVED and (names != () or self._texts):
            return mask_text(None)
        return self._without_arguments(value)


def _masked_content(args: Any, names: Collection[str] | None) -> Any:
    if names is None or not isinstance(args, Mapping):
        return mask_text(None)
    if not _is_content(args):
        return masked_args(args, names)
    if args.get("blob") is not None:
        return {"blob": mask_text(None)}
    return {**args, "inline": masked_args(args.get("inline"), names)}


def _is_content(args: Mapping[str, Any]) -> bool:
    # With any other key, these are a tool's own arguments. One argument happens to have such a name.
    return bool(args) and args.keys() <= _CONTENT


def _is_binding(value: Any) -> bool:
    """Distinguish hashes and signatures from numbers, arguments and words under the same key."""
    if isinstance(value, list):
        return any(map(_is_binding, value))
    return isinstance(value, str) and _BINDING.fullmatch(value) is not None


def _calls(document: Any) -> Iterator[tuple[str, Any]]:
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(value)
        elif isinstance(value, Mapping):
            args = value.get("args")
            if isinstance(args, Mapping):
                yield str(value.get("tool", "")), args.get("inline") if _is_content(args) else args
            stack.extend(value.values())


def _read_document(payload: Payload) -> Any:
    if not payload.metadata.get("encoding", b"").startswith(_JSON):
        return None
    try:
        document = json.loads(payload.data)
    except ValueError:
        return None
    except RecursionError:
        return _TOO_DEEP
    return document if _is_shallow(document) else _TOO_DEEP


def _is_shallow(document: Any) -> bool:
    level = [document]
    for _ in range(_MAX_LEVELS):
        nested = (each.values() if isinstance(each, Mapping) else each for each in level if isinstance(each, _NESTS))
        level = [each for values in nested for each in values]
        if not level:
            return True
    return False


def _mask_payload(payload: Payload, document: Any, masked: _Masked) -> Payload:
    if document is None:
        return payload
    data = json.dumps(masked.of(document), ensure_ascii=False, separators=(",", ":"))
    return Payload(metadata=payload.metadata, data=data.encode("utf-8", "surrogatepass"))
