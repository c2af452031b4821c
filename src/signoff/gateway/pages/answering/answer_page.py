"""Serves the page for a person's answer in place of a call: a form made from the tool's `answer_schema`."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import BadRequest
from signoff.contracts.requests import DecisionDraft
from signoff.formats.json_schema import CompiledSchema
from signoff.formats.replace import replace
from signoff.gateway.approvals.argument_form import fields_of
from signoff.gateway.approvals.argument_parser import ParsedArguments, read_fields
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.auth.dependencies import PAGE_DECIDE, PAGE_READ
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.errors import receipt_status
from signoff.gateway.pages.decision_form import author_of, draft_in
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.edit import field_context, form_context, form_purpose, no_decision
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.request_loader import OpenedRequest, open_request
from signoff.languages.catalogue import text
from signoff.texts.endings import receipt_words

_VALUE: Final = "answer"
"""The name of the one field for an answer that is no object."""
_SENT: Final = ("revision", "question_hash", "thread", "delivery", "reason", "passkey")

router = APIRouter(include_in_schema=False)


@router.api_route("/approvals/{approval}/answer", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_answer(approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show a field for every value of the answer."""
    opened = await open_request(site.deps, approval, visitor)
    if not opened.page.answers:
        language = visitor.formatter.language
        raise BadRequest(text("answer.not_now", language), status=409, language=language)
    return _write(site, opened, visitor, read_answer(opened.request, {}))


@router.post("/approvals/{approval}/answer", dependencies=[PAGE_DECIDE])
async def send_answer(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Decide by the sent form, or show its problems."""
    language = visitor.formatter.language
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    opened = await open_request(site.deps, approval, visitor)
    if not visitor.opened(form.get("token", ""), form_purpose(opened.request, "answer")):
        return no_decision(site, opened, visitor, "answer", note=text("note.out_of_date", language), status=403)
    typed = read_answer(opened.request, form)
    if opened.page.answers and not typed.good:
        count = len(typed.problems) + sum(bool(field.problem) for field in typed.fields)
        return _write(site, opened, visitor, typed, form, note=text("edit.wrong", language, n=count), status=422)
    # Even without the right to answer: the service refuses, and records that.
    draft = answer_draft(opened.request, typed, form, language)
    receipt = await DecisionService(site.deps).decide(draft, author_of(visitor))
    if receipt.status == "accepted":
        return RedirectResponse(f"/approvals/{opened.request.id}", status_code=303)
    note, status = receipt_words(receipt, visitor.formatter), receipt_status(receipt)
    if opened.page.answers and receipt.code in ("malformed", "assurance", "unavailable"):
        return _write(site, opened, visitor, typed, form, note=note, status=status)
    return no_decision(site, opened, visitor, "answer", note=note, status=status)


def read_answer(request: ApprovalRequest, form: Mapping[str, str]) -> ParsedArguments:
    """Return the fields of the answer, with the sent texts of `form`."""
    schema = _form_schema(request.answer_schema or {})
    return read_fields(fields_of({}, schema), form, {}, CompiledSchema(schema) if form else None)


def answer_draft(
    request: ApprovalRequest, typed: ParsedArguments, form: Mapping[str, str], language: str
) -> DecisionDraft:
    """Raises `BadRequest`."""
    plain = {name: form.get(name, "") for name in _SENT}
    args = typed.args or {}
    answer = args if _is_object(request.answer_schema or {}) else args.get(_VALUE)
    return replace(draft_in(plain, request.id, "answered", language), answer=answer)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _form_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an object, which a form needs. References lead to the definitions at its top."""
    if _is_object(schema):
        return schema
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    outer = {"type": "object", "properties": {_VALUE: inner}, "required": [_VALUE]}
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _write(
    site: Site,
    opened: OpenedRequest,
    visitor: Visitor,
    typed: ParsedArguments,
    form: Mapping[str, str] | None = None,
    *,
    note: str = "",
    status: int = 200,
) -> Response:
    sent = form or {}
    context = {
        **form_context(opened, visitor, "answer"),
        **field_context(typed, visitor),
        "note": note,
        "reason": sent.get("reason", ""),
        "delivery": secrets.token_hex(16),
    }
    return site.renderer.page("answer.html", visitor, status=status, nav="waiting", **context)
