"""Serves the pages of tools: the gate inventory, and a form to try a call."""

import json
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.errors import NotFound, SignoffError
from signoff.contracts.limits import ARGUMENTS_BYTES
from signoff.contracts.message import CallPart
from signoff.contracts.names import DEFAULT_ASKER
from signoff.contracts.person import Person
from signoff.formats.json_reader import NotJson, read_json
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.gateway.auth.dependencies import PAGE_READ
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.pages.dependencies import CurrentSite, CurrentVisitor, Site
from signoff.gateway.pages.form_fields import read_form
from signoff.gateway.turn_starter import chosen_actor
from signoff.languages.catalogue import text
from signoff.languages.remarks import remark_text
from signoff.people.directory import principal_of
from signoff.policy.answer import EngineAnswer
from signoff.policypool.pool import ask_rules
from signoff.registry.capabilities import KINDS
from signoff.registry.gates.inventory import exists_for, inventory
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.registry.scopes.position import owner_of
from signoff.registry.tool import Tool

_SAMPLES: Final[dict[str, Any]] = {"string": "", "number": 0, "integer": 0, "boolean": False, "array": [], "object": {}}


@dataclass(frozen=True)
class CallExplanation:
    """The gate decision for a call, in words."""

    kind: str
    headline: str
    why: str
    gate: str
    rule: str
    engines: tuple[EngineAnswer, ...]


router = APIRouter(include_in_schema=False)


@router.api_route("/tools", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def list_tools(site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """List the tools of the visitor's tenant with their gate decisions."""
    rows_of_inventory = inventory(site.deps.catalog, visitor.person.tenant)
    rows = [(row, _tool(site, visitor, row.tool).description, row.needs.split(", ")) for row in rows_of_inventory]
    return site.renderer.page("tools.html", visitor, nav="tools", rows=rows)


@router.api_route("/tools/{tool}", methods=["GET", "HEAD"], dependencies=[PAGE_READ])
async def show_tool(tool: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Show the form to try a tool's gates."""
    return _form(site, visitor, _tool(site, visitor, tool), {})


@router.post("/tools/{tool}", dependencies=[PAGE_READ])
async def explain_call(request: Request, tool: str, site: CurrentSite, visitor: CurrentVisitor) -> Response:
    """Judge a call with the given arguments. Runs nothing and asks no approver."""
    declared = _tool(site, visitor, tool)
    form = {name: str(value) for name, value in (await read_form(request)).items()}
    language = visitor.formatter.language
    if not visitor.opened(form.get("token", ""), f"try {declared.name}"):
        return _form(site, visitor, declared, form, note=text("try.out_of_date", language), status=403)
    try:
        args = _arguments(form.get("args", ""))
    except ValueError as error:
        note = text("try.not_json", language, why=str(error))
        return _form(site, visitor, declared, form, note=note, status=422)
    try:
        decision = await _judge(site, visitor, declared, form, args)
    except SignoffError as error:
        return _form(site, visitor, declared, form, note=error.message, status=422)
    return _form(site, visitor, declared, form, explained=_explain(site, decision, language))


async def _judge(site: Site, visitor: Visitor, tool: Tool, form: dict[str, str], args: dict[str, Any]) -> JudgedCall:
    tenant = visitor.person.tenant
    actor, route, step = owner_of(tool)
    ctx = CallContext(
        actor=actor or chosen_actor(site.deps, form.get("actor") or None),
        route=route,
        step=step,
        session="try",
        turn="try",
        tenant=tenant,
        channel="inbox",
        user=principal_of(_asker(site, visitor, form.get("user", "")), site.deps.people),
    )
    call = CallPart(call="c1.1", tool=tool.name, args=Content(inline=args))
    catalog, known = site.deps.catalog, GateFacts(backends=frozenset(KINDS), spent={}, at=site.deps.clock())
    return await ask_rules(catalog.may_block, judge, catalog, ctx, call, args, Tally(), known=known)


def _asker(site: Site, visitor: Visitor, named: str) -> Person:
    """Outside development, return the visitor, so that others stay unknown."""
    if not site.deps.development:
        return visitor.person
    return known_person(site.deps.people, named or DEFAULT_ASKER, visitor.person.tenant)


def _explain(site: Site, found: JudgedCall, language: str) -> CallExplanation:
    verdict = found.verdict
    who = ""
    if found.kind == "ask" and found.tool is not None:
        approvers = site.deps.catalog.approvers(found.tool.activity, verdict)
        who = ", ".join(each.partition(":")[2] for each in approvers)
    rule = f"{verdict.rule.label}: {verdict.rule_text}" if verdict is not None and verdict.rule_text else ""
    return CallExplanation(
        kind=found.explained_kind,
        headline=text(f"try.{found.explained_kind}", language, who=who),
        why=remark_text(verdict.reasons if verdict is not None else found.words, language),
        gate=found.gate,
        rule=rule,
        engines=verdict.engines if verdict is not None else (),
    )


def _form(
    site: Site,
    visitor: Visitor,
    tool: Tool,
    form: dict[str, str],
    *,
    note: str = "",
    status: int = 200,
    explained: CallExplanation | None = None,
) -> Response:
    owner, _, _ = owner_of(tool)
    actors = [name for name, actor in site.deps.catalog.actors.items() if _uses(actor.tools, tool.name)]
    actors = [owner] if owner else actors
    return site.renderer.page(
        "try.html",
        visitor,
        status=status,
        nav="tools",
        tool=tool,
        token=visitor.token(f"try {tool.name}"),
        actors=actors or list(site.deps.catalog.actors),
        actor=form.get("actor", ""),
        user=(form.get("user", "") or DEFAULT_ASKER) if site.deps.development else visitor.person.id,
        askers=None if site.deps.development else [visitor.person],
        args=form.get("args") or json.dumps(_sample(tool), indent=2, ensure_ascii=False),
        note=note,
        explained=explained,
    )


def _tool(site: Site, visitor: Visitor, name: str) -> Tool:
    catalog, tenant = site.deps.catalog, visitor.person.tenant
    declared = catalog.tool(name)
    if declared is None or not exists_for(catalog, declared, tenant):
        known = (tool.name for tool in catalog.tools() if exists_for(catalog, tool, tenant))
        raise NotFound(f"there is no tool {quote_name(name)}{did_you_mean(name, known)}")
    return declared


def _uses(tools: tuple[str, ...] | None, name: str) -> bool:
    return tools is None or name in tools


def _arguments(written: str) -> dict[str, Any]:
    if len(written) > ARGUMENTS_BYTES:
        raise ValueError(f"more than {ARGUMENTS_BYTES} characters")
    try:
        args = read_json(written)
    except NotJson as error:
        raise ValueError(f"the text {error}") from None
    if not isinstance(args, dict):
        raise ValueError("it is not a JSON object")
    return args


def _sample(tool: Tool) -> dict[str, Any]:
    sample: dict[str, Any] = {}
    for name, schema in tool.schema.schema.get("properties", {}).items():
        if not isinstance(schema, dict):
            continue
        examples = schema.get("examples") or [schema.get("default", _SAMPLES.get(str(schema.get("type")), ""))]
        sample[name] = examples[0]
    return sample
