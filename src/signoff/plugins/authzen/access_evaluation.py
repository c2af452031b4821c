"""Answers whether a call may be made: by the rules as they stand, or once by an approval. A denial remains one."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.content import Content
from signoff.contracts.errors import BadRequest, NotFound, Refused
from signoff.contracts.message import CallPart
from signoff.gateway.auth.caller import AuthenticatedCaller
from signoff.gateway.calls.call_proposer import CHANNEL
from signoff.gateway.calls.call_reader import CALL, load_call
from signoff.gateway.calls.call_refusals import note_refusal
from signoff.gateway.calls.permit_service import use_id, use_permit
from signoff.gateway.deps import GatewayDeps
from signoff.people.directory import principal_of, turn_context
from signoff.plugins.authzen.access_requests import view_of
from signoff.plugins.authzen.asked_call import AskedCall, NoSuchCall, find_call
from signoff.plugins.authzen.evaluation_body import EvaluationBody
from signoff.plugins.authzen.problems import EVALUATION
from signoff.plugins.authzen.sealed_ids import AUTHZEN_KEY, open_approval, seal_denial
from signoff.policypool.pool import ask_rules
from signoff.registry.capabilities import KINDS
from signoff.registry.gates.local_decision import LocalGateDecision
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.store.freezes import Freezes

APPROVAL: Final = "approval"
"""The member of an evaluation's context that names an approval."""
RETRY_SECONDS: Final = 5
_CONFLICT: Final = 409
_REASONS: Final = {"denied": "policy_denied", "input_invalid": "invalid_arguments"}


class NextStep(NamedTuple):
    """What an enforcement point is told to do after its approval did not count."""

    reason: str
    action: Literal["request", "retry", "none"]


_STEPS: Final = {
    "waiting": NextStep("grant_pending", "retry"),
    # Single use is what people approved: asking them again is for whoever wants another call.
    "used": NextStep("approval_used", "none"),
    "lapsed": NextStep("approval_expired", "request"),
    "frozen": NextStep("policy_denied", "retry"),
}
_CLOSED: Final = NextStep("policy_denied", "none")
_UNKNOWN: Final = NextStep("approval_unverifiable", "none")
_OUT_OF_SCOPE: Final = NextStep("out_of_scope", "request")
_EDITED: Final = NextStep("out_of_scope", "none")

_REFUSALS: Final = {"not_available": "unknown", _UNKNOWN.reason: "unproved", _OUT_OF_SCOPE.reason: "stale"}
"""Reasons that are written down: no tool of this agent, no approval of its, and another call than was approved."""


@dataclass(frozen=True)
class CallJudgment:
    """What the rules say of a call now: `true`, or why not, and whether that can be requested."""

    decision: bool
    reason: str = ""
    message: str = ""
    is_requestable: bool = False


async def evaluate(deps: GatewayDeps, caller: AuthenticatedCaller | None, body: EvaluationBody) -> dict[str, Any]:
    """Returns the decision on a call. Raises `Unavailable`.

    Without an approval nobody is asked, nothing is kept and no permit is handed out. With one its permit is used: the
    decision is `true` once.
    """
    try:
        asked = find_call(deps, caller, body)
    except NoSuchCall as error:
        await note_refusal(deps, caller, EVALUATION, error.refusal, body.resource.id)
        return _denial(error.reason, error.message)
    found = await (_use_approval(deps, asked, body.context) if APPROVAL in body.context else _decide(deps, asked))
    reason = found.get("context", {}).get("reason", "")
    if reason in _REFUSALS:
        await note_refusal(deps, caller, EVALUATION, Refused(reason, code=_REFUSALS[reason]), asked.tool)
    return found


async def _decide(deps: GatewayDeps, asked: AskedCall) -> dict[str, Any]:
    judged = await judge_call(deps, asked)
    if judged.decision:
        return {"decision": True}
    if not judged.is_requestable:
        return _denial(judged.reason, judged.message)
    now = deps.clock()
    evaluation, until = seal_denial(await deps.store.secret_key(AUTHZEN_KEY), asked, now)
    return {
        "decision": False,
        "context": {
            "evaluation_id": evaluation,
            "evaluated_at": now.isoformat(),
            "reason": judged.reason,
            "access_request": {"expires_at": until.isoformat()},
        },
    }


async def judge_call(deps: GatewayDeps, asked: AskedCall) -> CallJudgment:
    """Judges a call by the gates, as far as they need nobody's function and no count. Raises `Unavailable`."""
    try:
        await Freezes(deps.store).refuse_new(asked.tenant)
    except Refused as error:
        return CallJudgment(False, "frozen", error.message)
    ctx = CallContext(
        actor=asked.agent,
        session="evaluation",
        turn="evaluation",
        tenant=asked.tenant,
        channel=CHANNEL,
        user=principal_of(asked.person, deps.people),
        extra=turn_context(asked.person, {}),
    )
    call = CallPart(call=CALL, tool=asked.tool, args=Content(inline=asked.args))
    catalog, known = deps.catalog, GateFacts(backends=frozenset(KINDS), spent={}, at=deps.clock())
    found = await ask_rules(catalog.may_block, judge, catalog, ctx, call, asked.args, Tally(), known=known)
    return judgment_of(found)


def judgment_of(found: LocalGateDecision) -> CallJudgment:
    """Translates the decision of the gates for an enforcement point, which runs the call itself."""
    if found.kind == "settled":
        return CallJudgment(False, _REASONS.get(found.code, found.code), found.message)
    tool = found.tool
    if tool is None or not tool.is_external:
        return CallJudgment(False, "run_by_signoff", "Signoff runs this tool itself: propose it as an external call")
    # What is counted, or asked of a function of somebody's, is only known once a call is proposed.
    is_open = tool.available is not None or tool.usage_limit is not None
    if found.kind == "run" and not is_open:
        return CallJudgment(True)
    return CallJudgment(False, "approval_required", is_requestable=True)


async def _use_approval(deps: GatewayDeps, asked: AskedCall, context: dict[str, Any]) -> dict[str, Any]:
    """Uses the permit of an approved call, where it is the very call that is asked about."""
    key, given = await deps.store.secret_key(AUTHZEN_KEY), context[APPROVAL]
    approval_id = given.get("id") if isinstance(given, dict) else None
    named = open_approval(key, approval_id) if isinstance(approval_id, str) else None
    if named is None:
        return await _refuse(deps, asked, _UNKNOWN)
    try:
        # As one of the agent that asks: another's is not there.
        turn = await load_call(deps, named.call, asked.agent, asked.tenant)
    except NotFound:
        return await _refuse(deps, asked, _UNKNOWN)
    task, wanted = await view_of(deps, turn), sha256_hex(asked.args)
    if (turn.call.tool, turn.requester.user) != (asked.tool, asked.person.id) or sha256_hex(task.proposed) != wanted:
        return await _refuse(deps, asked, _OUT_OF_SCOPE)
    # Looked at before it is used: of what people changed nothing may be used up here.
    if task.approval is not None and not task.is_as_proposed:
        return await _refuse(deps, asked, _EDITED)
    try:
        permit = await use_permit(deps, turn, use_id(None))
    except BadRequest as error:
        if error.status != _CONFLICT:
            raise
        return await _refuse(deps, asked, _STEPS.get(error.code, _CLOSED), error.message)
    if sha256_hex(permit.args) != wanted:
        return await _refuse(deps, asked, _EDITED)
    reference = {name: value for name, value in task.approval_json(key).items() if name != "approved_at"}
    return {"decision": True, "context": {"approval": reference, "call": turn.name, "key": permit.key}}


async def _refuse(deps: GatewayDeps, asked: AskedCall, step: NextStep, words: str = "") -> dict[str, Any]:
    """Returns a denial that says what is to be done; to request anew it takes a denial that can be requested."""
    if step.action != "request":
        after = {"retry_after": RETRY_SECONDS} if step.action == "retry" else {}
        return _denial(step.reason, words, next_action=step.action, **after)
    anew = await _decide(deps, asked)
    fresh = anew.get("context", {})
    if "access_request" not in fresh:
        return _denial(step.reason, words, next_action="none")
    return {"decision": False, "context": {**fresh, "reason": step.reason, "next_action": "request"}}


def _denial(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    words = {"reason_user": {"en": message}} if message else {}
    return {"decision": False, "context": {"reason": reason, **words, **more}}
