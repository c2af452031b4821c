"""The API's look ahead: a request as it would be asked with other arguments. Nothing is changed by it."""

from collections.abc import Collection
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from pydantic import Field

from signoff.approvals.redaction import hide
from signoff.contracts.errors import Refused
from signoff.contracts.requests import RequestBody
from signoff.contracts.responses import EditPreview, Fault
from signoff.gateway.argument_form import whole_field
from signoff.gateway.argument_parser import Typed, problem_words, read_fields, set_values
from signoff.gateway.auth.caller import caller_of, own_tenant, person_of
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.edited_card import as_edited
from signoff.gateway.errors import BadRequest
from signoff.gateway.secret_masks import hidden
from signoff.registry.catalog import Catalog
from signoff.store.request_reader import LoadedRequest

_SET: Final = "Texts by dotted name, such as `totalCost`: each is read by the tool's schema."


class PreviewBody(RequestBody):
    """What is to be changed: some arguments, or all of them."""

    set: dict[Annotated[str, Field(max_length=1_000)], str] = Field(default={}, max_length=100, description=_SET)
    text: str = Field(default="", description="All arguments, as JSON, instead of `set`; masks keep what they hide.")


class PreviewsApi:
    """The handler of `/v1/approvals/{approval}/preview`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._conversations = Conversations(deps)

    def router(self) -> APIRouter:
        """The route."""
        faults: dict[int | str, dict[str, Any]] = {status: {"model": Fault} for status in (404, 422, 503)}
        router = APIRouter(prefix="/v1/approvals", tags=["approvals"], responses=faults)
        router.add_api_route("/{approval}/preview", self.preview, methods=["POST"], summary="Try other arguments")
        return router

    async def preview(self, approval: str, body: PreviewBody, request: Request) -> EditPreview:
        """The arguments and the card as they would be, for who may read the request; `edited_args` decides it."""
        tenant, person = own_tenant(caller_of(request), None), person_of(request)
        approval_id = await self._conversations.approval_id(approval, person, tenant)
        loaded = await self._conversations.loaded(approval_id, person)
        typed = _typed(loaded, body, self._deps.catalog)
        if problems := problem_words(typed):
            raise BadRequest(problems)
        card = as_edited(loaded.request, typed.written, self._deps.catalog).card
        return EditPreview(args=_as_written(typed, body, loaded.request.secrets), card=card, changed=typed.changed)


def _as_written(typed: Typed, body: PreviewBody, secrets: Collection[str]) -> dict[str, Any]:
    """The arguments as they can be sent: what somebody wrote as they wrote it, and masks for the secrets they left."""
    if body.text:
        return dict(typed.written)
    left = [name for name in secrets if not any(f"{name}.".startswith(f"{path}.") for path in body.set)]
    masked: dict[str, Any] = hide(typed.written, left, hidden)
    return masked


def _typed(loaded: LoadedRequest, body: PreviewBody, catalog: Catalog) -> Typed:
    """What somebody made of the arguments. Raises `NotFound` for an argument that is not there, `BadRequest`."""
    request = loaded.request
    tool = catalog.defined(request.tool, request.definition)
    schema = tool.schema if tool is not None else None
    if not body.text:
        try:
            return set_values(loaded.args, body.set, schema, request.secrets)
        except Refused as error:
            if error.code != "malformed":
                raise
            raise BadRequest(error.message) from None
    field = whole_field(loaded.args, request.secrets)
    return read_fields((field,), {field.key: body.text}, loaded.args, schema, request.secrets)
