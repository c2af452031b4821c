"""The routes of the codec server, as Temporal's protocol has them: `/decode` and `/encode`, below any path."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from starlette.responses import JSONResponse
from temporalio.api.common.v1 import Payload, Payloads

from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import AuditLog
from signoff.contracts.errors import BadRequest, Refused
from signoff.contracts.limits import CODEC_BODY_BYTES
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.responses import Health
from signoff.engine.kill_switch import AUDITOR, OPERATOR
from signoff.gateway.auth.authenticator import Authenticator
from signoff.gateway.auth.caller import AuthenticatedCaller
from signoff.gateway.auth.dependencies import OPEN, Access, Deps
from signoff.gateway.codec.payload_masks import mask_payloads
from signoff.gateway.read_access import reads_all
from signoff.gateway.transport.json_route import read_body
from signoff.temporal.encryption import PLACE_BYTES, EncryptionCodec, is_encrypted

router = APIRouter(tags=["codec"])
PAYLOADS: Final = 2_000
"""How many payloads one request may bring."""
_WORKFLOWS_PER_ENTRY: Final = 50


class CodecAccess(Access):
    """Access for operators and auditors of the installation, by a personal token or the cookie of a browser.

    They have to be of the default tenant: a payload does not say whose it is, so whoever reads one may read all.
    """

    @property
    def body_bytes(self) -> int:
        """See `Access`."""
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
"""A route that decrypts or encrypts."""


@router.get("/healthz", summary="Whether this process answers", dependencies=[OPEN])
async def health() -> Health:
    """Looks at nothing else."""
    return Health()


@router.post("/decode", summary="Decrypt payloads")
@router.post("/{path:path}/decode", include_in_schema=False)
async def decode(request: Request, deps: Deps, caller: CodecReader) -> JSONResponse:
    """Decrypts payloads, their secret arguments masked. Each request is in the record before it is answered."""
    codec = _codec(request)
    payloads = await _read(request, codec)
    person = None if caller is None else caller.person
    places = list(dict.fromkeys(each.data[:PLACE_BYTES].hex() for each in payloads if is_encrypted(each)))
    now = deps.clock()
    # All of them, in as many entries as it takes: whoever asks chooses their order, and made-up ones could stand first.
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
    # Before the answer: what nobody could write down is not shown.
    await AuditLog(deps.store).append(entries)
    decoded = await codec.decode(payloads)
    # In a thread: many secrets and many texts take seconds, in which nobody else would be answered.
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
        # An empty list is an empty message to the parser of protobuf.
        found = ParseDict(body, Payloads()) if isinstance(body, dict) else None
    except (ParseError, ValueError, RecursionError):
        found = None
    if found is None:
        raise BadRequest('a request is the JSON of payloads: `{"payloads": [...]}`')
    if len(found.payloads) > PAYLOADS:
        raise BadRequest(f"a request brings at most {PAYLOADS} payloads")
    return list(found.payloads)


def _codec(request: Request) -> EncryptionCodec:
    codec: EncryptionCodec = request.app.state.codec
    return codec


def _answer(payloads: Sequence[Payload]) -> JSONResponse:
    return JSONResponse(MessageToDict(Payloads(payloads=payloads)))


def _decrypts(caller: AuthenticatedCaller, *, development: bool) -> bool:
    return caller.person.tenant == DEFAULT_TENANT and reads_all(caller.person, development=development)
