"""Calls the handlers of policies, outside the pure rules. A failed or missing answer needs approval."""

import copy
import dataclasses
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from signoff.activities.hooks.hook_caller import NoAnswer, ask
from signoff.approvals.redaction import redact_secrets, secret_values
from signoff.contracts.call import CallContext
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.people.no_person import guard_user
from signoff.policy.approval_policy import Term
from signoff.policy.compiled_policy import PolicyVerdict
from signoff.policy.handler_verdict import HandlerCall, HandlerVerdict, apply_handler_verdict, handler_rule
from signoff.policy.terms import VerdictTerms
from signoff.policypool.pool import ask_rules
from signoff.registry.catalog import Catalog
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import by_verdict
from signoff.registry.hooks import POLICY_HANDLER
from signoff.registry.tool import Tool

_REASON_CHARS: Final = 500

logger = logging.getLogger("signoff.activities")


async def apply_policy_handler(
    catalog: Catalog, ctx: CallContext, call: CallPart, args: Any, found: JudgedCall
) -> JudgedCall:
    """Add the policy handler's answer to `found` if it is missing. Never raises."""
    if found.before_handler is None or found.tool is None:
        return found
    view = catalog.tool_view_at(ctx, found.at)
    given = found.args(args)
    verdict = await verdict_of(catalog, found.tool, given, view.judged_ctx, found.before_handler)
    bound = view.bounds_verdict(found.tool, catalog.policy(found.tool.activity), given)
    decision = by_verdict(view, call, found.tool, verdict, bound, found.objection)
    return decision._replace(corrected=found.corrected, notes=found.notes, at=found.at)


async def terms_at(
    catalog: Catalog, ctx: CallContext, args: Any, found: JudgedCall, tool: Tool, at: datetime | None
) -> VerdictTerms | None:
    """Return the terms on which the present policy would ask about the call `found` at an instant, or `None` if it
    would deny the call. Never raises. Reuses `found` if nothing depends on the time.
    """
    policy = catalog.policy(tool.activity)
    if at == found.at or not (policy.reads_now or tool.activity in catalog.handlers):
        return catalog.terms(tool.activity, found.verdict)
    view = catalog.tool_view_at(ctx, at)
    judged = await ask_rules(catalog.may_block, view.verdict, policy, args)
    verdict = await verdict_of(catalog, tool, args, view.judged_ctx, judged)
    return None if verdict.verdict == "deny" else catalog.terms(tool.activity, verdict)


async def verdict_of(
    catalog: Catalog,
    tool: Tool,
    args: Mapping[str, Any],
    ctx: Mapping[str, Any],
    verdict: PolicyVerdict,
    seconds: float | None = None,
) -> PolicyVerdict:
    policy, handler = catalog.policy(tool.activity), catalog.handlers.get(tool.activity)
    rule = handler_rule(policy)
    if handler is None or rule is None or verdict.verdict == "deny":
        return verdict
    try:
        call = HandlerCall(tool.facts, copy.deepcopy(dict(args)))
        answer = await ask(POLICY_HANDLER, handler, call, guard_user(ctx), seconds=seconds)
    except NoAnswer as none:
        answer = HandlerVerdict("ask", reason=f"`handler` {none}, so the call needs approval", failed=True)
        logger.warning("%s of tool %s: %s", rule.label, tool.name, answer.reason)
    # Redact before truncating: half of a secret would not be recognised.
    reason = redact_secrets(answer.reason, secret_values(args, tool.masked_arguments))[:_REASON_CHARS]
    redacted = dataclasses.replace(answer, reason=reason, stricter=_quiet(answer.stricter, args, tool))
    return apply_handler_verdict(policy, verdict, redacted)


def _quiet(stricter: Term | None, args: Mapping[str, Any], tool: Tool) -> Term | None:
    if stricter is None:
        return None
    reason = redact_secrets(stricter.reason, secret_values(args, tool.masked_arguments))[:_REASON_CHARS]
    return replace(stricter, reason=reason)
