"""Serves the page for editing a call's arguments before approval: write, review the changes, approve."""

import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import BadRequest
from signoff.contracts.requests import DecisionDraft
from signoff.formats.replace import replace
from signoff.formats.visible_text import number
from signoff.gateway.approvals.argument_form import AbsentValue, ArgumentField, fields_of
from signoff.gateway.approvals.argument_parser import ParsedArguments, read_fields
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.approvals.edited_card import edited_request
from signoff.gateway.auth.dependencies import PAGE_DECIDE, PAGE_READ
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.errors import receipt_status
from signoff.gateway.pages.card_view import why_no_edit, word_to_type
from signoff.gateway.pages.decision_form import author_of, draft_in, typing_note
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.pages.request_loader import OpenedRequest, open_request
from signoff.gateway.pages.timeline_view import diff_lines
from signoff.languages.catalogue import text
from signoff.languages.remarks import remark_text
from signoff.registry.tool import Tool
from signoff.texts.endings import receipt_words
from signoff.texts.formatter import Formatter

Form = Literal["edit", "answer"]
STEPS: Final = ("write", "review", "approve")
_SENT: Final = ("revision", "question_hash", "thread", "delivery", "reason", "typed", "passkey")
_WORDS: Final = {"true": "value.yes", "false": "value.no"}
"""The texts of JSON values."""


router = APIRouter(include_in_schema=False)


@router.api_route("/approvals/{approval}/edit", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_edit(approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show a field for every argument."""
    opened = await open_request(site.deps, approval, visitor)
    why = _why_not(opened, visitor)
    if why:
        language = visitor.formatter.language
        raise BadRequest(text("edit.not_now", language, why=why), status=409, language=language)
    return _write(site, opened, visitor, read_typed(site, opened, {}))


@router.post("/approvals/{approval}/edit", dependencies=[PAGE_DECIDE])
async def send_edit(request: Request, approval: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Handle a sent form: back to the fields, to the review, or to the decision."""
    language = visitor.formatter.language
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    opened = await open_request(site.deps, approval, visitor)
    if not visitor.opened(form.get("token", ""), form_purpose(opened.request, "edit")):
        return no_decision(site, opened, visitor, "edit", note=text("note.out_of_date", language), status=403)
    why = _why_not(opened, visitor)
    if why:
        return no_decision(site, opened, visitor, "edit", note=text("edit.not_now", language, why=why), status=409)
    shown = (form.get("revision"), form.get("question_hash"))
    if shown != (str(opened.request.revision), opened.request.question_hash):
        return no_decision(site, opened, visitor, "edit", note=text("receipt.stale", language), status=409)
    if form.get("thread") != opened.request.thread:
        why = text("why.thread", language)
        return no_decision(site, opened, visitor, "edit", note=text("note.refused", language, why=why), status=409)
    typed = read_typed(site, opened, form)
    step = form.get("step") if form.get("step") in STEPS else "review"
    if step == "write":
        return _write(site, opened, visitor, typed)
    if not typed.good:
        return _write(site, opened, visitor, typed, note=_wrong(typed, language), status=422)
    if not typed.changed:
        return _write(site, opened, visitor, typed, note=text("edit.same", language), status=422)
    return await (_approve if step == "approve" else _review)(site, opened, visitor, typed, form)


async def _review(
    site: Site,
    opened: OpenedRequest,
    visitor: Visitor,
    typed: ParsedArguments,
    form: Mapping[str, str],
    *,
    note: str = "",
) -> Response:
    changed = edited_request(opened.request, typed.written, site.deps.catalog)
    context = {
        **form_context(opened, visitor, "edit"),
        "note": note,
        "typed": word_to_type(changed, visitor),
        "effect": changed.card.effect,
        "lines": diff_lines(opened.request.card.rows, changed.card.rows, visitor.formatter),
        "sent": [(key, form[key]) for field in typed.fields for key in (field.key, field.null_key) if key in form],
        "delivery": secrets.token_hex(16),
    }
    status = 422 if note else 200
    return site.renderer.page("edit_review.html", visitor, status=status, nav="waiting", **context)


async def _approve(
    site: Site, opened: OpenedRequest, visitor: Visitor, typed: ParsedArguments, form: Mapping[str, str]
) -> Response:
    language = visitor.formatter.language
    draft = edit_draft(opened, typed, form, language)
    changed = edited_request(opened.request, typed.written, site.deps.catalog)
    if note := typing_note(changed, draft, visitor):
        return await _review(site, opened, visitor, typed, form, note=note)
    receipt = await DecisionService(site.deps).decide(draft, author_of(visitor))
    if receipt.status in ("accepted", "counted"):
        return RedirectResponse(f"/approvals/{opened.request.id}", status_code=303)
    note = receipt_words(receipt, visitor.formatter)
    if receipt.code in ("malformed", "not_allowed", "unavailable"):
        return _write(site, opened, visitor, typed, note=note, status=receipt_status(receipt))
    return no_decision(site, opened, visitor, "edit", note=note, status=receipt_status(receipt))


def edit_draft(opened: OpenedRequest, typed: ParsedArguments, form: Mapping[str, str], language: str) -> DecisionDraft:
    """Return the approval of the typed arguments. Raises `BadRequest`."""
    plain = {name: form.get(name, "") for name in _SENT}
    return replace(draft_in(plain, opened.request.id, "approved", language), edited_args=typed.args)


def read_typed(site: Site, opened: OpenedRequest, form: Mapping[str, str]) -> ParsedArguments:
    request, tool = opened.request, _tool(site, opened.request)
    schema = tool.schema if tool is not None else None
    fields = fields_of(opened.args, schema.schema if schema is not None else {}, request.secrets)
    return read_fields(fields, form, opened.args, schema if form else None, request.secrets)


def _tool(site: Site, request: ApprovalRequest) -> Tool | None:
    return site.deps.catalog.find_definition(request.tool, request.definition)


def _why_not(opened: OpenedRequest, visitor: Visitor) -> str:
    why = why_no_edit(opened.request, opened.args) or ("" if opened.page.decides else "edit.why.you")
    return text(why, visitor.formatter.language) if why else ""


def _write(
    site: Site, opened: OpenedRequest, visitor: Visitor, typed: ParsedArguments, *, note: str = "", status: int = 200
) -> Response:
    context = {
        **form_context(opened, visitor, "edit"),
        **field_context(typed, visitor),
        "note": note,
        "tool_known": _tool(site, opened.request) is not None,
    }
    return site.renderer.page("edit.html", visitor, status=status, nav="waiting", **context)


def field_context(typed: ParsedArguments, visitor: Visitor) -> dict[str, Any]:
    """Return the values for the template of fields, `_field.html`."""
    language = visitor.formatter.language
    return {
        "fields": typed.fields,
        "problems": [remark_text(each, language) for each in typed.problems],
        "problem": lambda field: remark_text(field.problem, language),
        "choice": lambda option: text(_WORDS[option.value], language) if option.value in _WORDS else option.label,
        "hints": lambda field: _hints(field, visitor.formatter),
        "rows": lambda field: min(12, max(2, field.shown.count("\n") + 1)),
    }


def no_decision(site: Site, opened: OpenedRequest, visitor: Visitor, form: Form, *, note: str, status: int) -> Response:
    """Answer that a form decided nothing, and can decide nothing."""
    context = {**form_context(opened, visitor, form), "note": note}
    return site.renderer.page("edit_over.html", visitor, status=status, nav="waiting", **context)


def form_context(opened: OpenedRequest, visitor: Visitor, form: Form) -> dict[str, Any]:
    return {
        "request": opened.request,
        "card": opened.page,
        "token": visitor.token(form_purpose(opened.request, form)),
        "action": f"/approvals/{opened.request.id}/{form}",
    }


def form_purpose(request: ApprovalRequest, form: Form) -> str:
    return f"{form} {request.id}"


def _hints(field: ArgumentField, formatter: Formatter) -> str:
    language = formatter.language
    hints = [field.help.rstrip(".")] if field.help else []
    if field.kind in ("number", "integer", "lines", "json"):
        hints.append(text(f"edit.{field.kind}", language))
    for key, bound in (("least", field.least), ("most", field.most)):
        hints += [] if bound is None else [text(f"edit.{key}", language, n=number(bound))]
    if field.secret:
        hints.append(text("edit.secret", language, words=_hidden_words(field.original, language)))
    return " · ".join(hints)


def _hidden_words(value: Any, language: str) -> str:
    if isinstance(value, AbsentValue):
        return text("edit.not_given", language)
    if isinstance(value, str):
        return text("value.hidden.length", language, n=len(value))
    return text("value.hidden", language)


def _wrong(typed: ParsedArguments, language: str) -> str:
    count = len(typed.problems) + sum(bool(field.problem) for field in typed.fields)
    return text("edit.wrong", language, n=count)
