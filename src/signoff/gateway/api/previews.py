"""The API of previews: the effect of a call, and a request with other arguments. Changes nothing."""

from collections.abc import Collection
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from pydantic import Field

from signoff.approvals.redaction import hide
from signoff.contracts.errors import BadRequest, Refused
from signoff.contracts.preview import PreviewReference
from signoff.contracts.requests import RequestBody
from signoff.contracts.responses import EditPreview, EffectPreview
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.approvals.api_attempts import find_request
from signoff.gateway.approvals.argument_form import whole_field
from signoff.gateway.approvals.argument_parser import ParsedArguments, problem_words, read_fields, set_values
from signoff.gateway.approvals.edited_card import edited_request
from signoff.gateway.approvals.preview_reader import load_parts, may_see_preview
from signoff.gateway.approvals.secret_masks import mask_text
from signoff.gateway.auth.caller import own_tenant, person_of
from signoff.gateway.auth.dependencies import Deps, TokenDecider, TokenReader
from signoff.gateway.conversations import Conversations
from signoff.gateway.languages import formatter_in
from signoff.gateway.transport.json_route import JsonRoute
from signoff.registry.catalog import Catalog
from signoff.store.request_reader import LoadedRequest

router = APIRouter(prefix="/v1/approvals", tags=["approvals"], responses=FAULTS, route_class=JsonRoute)
_SET: Final = (
    "New values as text by dotted name, such as `totalCost`. The tool's schema gives the types. `null` is null."
)


class PreviewBody(RequestBody):
    """The changes: some arguments, or all of them."""

    set: dict[Annotated[str, Field(max_length=1_000)], str | None] = Field(default={}, max_length=100, description=_SET)
    text: str = Field(
        default="", description="All arguments as JSON, instead of `set`. Masks keep their hidden values."
    )


@router.get("/{approval}/effect", summary="Read the preview of a call's effect")
async def show_effect(approval: str, deps: Deps, caller: TokenReader) -> EffectPreview:
    """Returns the parts as approvers see them, with masked secrets. For people who may decide the request."""
    person = person_of(caller)
    loaded = await Conversations(deps).load(await find_request(deps, approval, caller), person)
    question = loaded.rows.latest
    if person is not None and not may_see_preview(loaded.request, person, deps.people, deps.clock()):
        raise Refused("only people who may decide this request see its preview", code="not_allowed")
    reference = question.preview or PreviewReference()
    parts = await load_parts(deps.store, question)
    return EffectPreview(parts=parts, sha256=reference.sha256, fault=reference.fault)


@router.post("/{approval}/preview", summary="Preview other arguments")
async def preview_edit(
    approval: str, body: PreviewBody, request: Request, deps: Deps, caller: TokenDecider
) -> EditPreview:
    """Returns the new arguments and card, for readers of the request. Decide with `edited_args`."""
    conversations, person = Conversations(deps), person_of(caller)
    approval_id = await conversations.approval_id(approval, person, own_tenant(caller, None))
    loaded = await conversations.load(approval_id, person)
    typed = _parse_changed(loaded, body, deps.catalog)
    if problems := problem_words(typed, formatter_in(request, person, deps.clock()).language):
        raise BadRequest(problems)
    card = edited_request(loaded.request, typed.written, deps.catalog).card
    return EditPreview(args=_as_written(typed, body, loaded.request.secrets), card=card, changed=typed.changed)


def _as_written(typed: ParsedArguments, body: PreviewBody, secrets: Collection[str]) -> dict[str, Any]:
    """Return texts as typed, and masks for unchanged secrets."""
    if body.text:
        return dict(typed.written)
    unchanged = [name for name in secrets if not any(f"{name}.".startswith(f"{path}.") for path in body.set)]
    masked: dict[str, Any] = hide(typed.written, unchanged, mask_text)
    return masked


def _parse_changed(loaded: LoadedRequest, body: PreviewBody, catalog: Catalog) -> ParsedArguments:
    """Raises `NotFound` for an unknown argument, `BadRequest`."""
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
