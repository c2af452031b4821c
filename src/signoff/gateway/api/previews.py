"""The API's look ahead: a request as it would be asked with other arguments. Nothing is changed by it."""

from collections.abc import Collection
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from pydantic import Field

from signoff.approvals.redaction import hide
from signoff.contracts.errors import BadRequest, Refused
from signoff.contracts.requests import RequestBody
from signoff.contracts.responses import EditPreview
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.approvals.argument_form import whole_field
from signoff.gateway.approvals.argument_parser import ParsedArguments, problem_words, read_fields, set_values
from signoff.gateway.approvals.decisions import edited_request
from signoff.gateway.approvals.secret_masks import mask_text
from signoff.gateway.auth.caller import own_tenant, person_of
from signoff.gateway.auth.dependencies import Deps, TokenDecider
from signoff.gateway.conversations import Conversations
from signoff.gateway.languages import formatter_in
from signoff.gateway.transport.json_route import JsonRoute
from signoff.registry.catalog import Catalog
from signoff.store.request_reader import LoadedRequest

router = APIRouter(prefix="/v1/approvals", tags=["approvals"], responses=FAULTS, route_class=JsonRoute)
_SET: Final = "Texts by dotted name, such as `totalCost`: each is read by the tool's schema. `null` is null."


class PreviewBody(RequestBody):
    """What is to be changed: some arguments, or all of them."""

    set: dict[Annotated[str, Field(max_length=1_000)], str | None] = Field(default={}, max_length=100, description=_SET)
    text: str = Field(default="", description="All arguments, as JSON, instead of `set`; masks keep what they hide.")


@router.post("/{approval}/preview", summary="Try other arguments")
async def preview_edit(
    approval: str, body: PreviewBody, request: Request, deps: Deps, caller: TokenDecider
) -> EditPreview:
    """The arguments and the card as they would be, for who may read the request; `edited_args` decides it."""
    conversations, person = Conversations(deps), person_of(caller)
    approval_id = await conversations.approval_id(approval, person, own_tenant(caller, None))
    loaded = await conversations.load(approval_id, person)
    typed = _parse_changed(loaded, body, deps.catalog)
    if problems := problem_words(typed, formatter_in(request, person, deps.clock()).language):
        raise BadRequest(problems)
    card = edited_request(loaded.request, typed.written, deps.catalog).card
    return EditPreview(args=_as_written(typed, body, loaded.request.secrets), card=card, changed=typed.changed)


def _as_written(typed: ParsedArguments, body: PreviewBody, secrets: Collection[str]) -> dict[str, Any]:
    """Returns the arguments as they can be sent: what somebody wrote as they wrote it, and masks for the secrets they
    left.
    """
    if body.text:
        return dict(typed.written)
    left = [name for name in secrets if not any(f"{name}.".startswith(f"{path}.") for path in body.set)]
    masked: dict[str, Any] = hide(typed.written, left, mask_text)
    return masked


def _parse_changed(loaded: LoadedRequest, body: PreviewBody, catalog: Catalog) -> ParsedArguments:
    """Parses the arguments as changed. Raises `NotFound` for an argument that is not there, `BadRequest`."""
    request = loaded.request
    tool = catalog.find_definition(request.tool, request.definition)
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
