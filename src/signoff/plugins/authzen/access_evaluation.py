"""Decides whether a call may run: by the present rules, or once by an approval. A denial stays a denial."""

from typing import Any, Final, Literal, NamedTuple

from signoff.calls import AgentCalls
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import BadRequest, NotFound, Refused
from signoff.plugins.authzen.access_requests import view_of
from signoff.plugins.authzen.asked_call import AskedCall, NoSuchCall, find_call
from signoff.plugins.authzen.evaluation_body import EvaluationBody
from signoff.plugins.authzen.sealed_ids import SEAL, open_approval, seal_denial

APPROVAL: Final = "approval"
"""The member of an evaluation's context that names an approval."""
RETRY_SECONDS: Final = 5
_CONFLICT: Final = 409


class NextStep(NamedTuple):
    """The next step of an enforcement point after a rejected approval."""

    reason: str
    action: Literal["request", "retry", "none"]


_STEPS: Final = {
    "waiting": NextStep("grant_pending", "retry"),
    # Approvers approved a single use. Another call needs another request.
    "used": NextStep("approval_used", "none"),
    "lapsed": NextStep("approval_expired", "request"),
    "frozen": NextStep("policy_denied", "retry"),
}
_CLOSED: Final = NextStep("policy_denied", "none")
_UNKNOWN: Final = NextStep("approval_unverifiable", "none")
_OUT_OF_SCOPE: Final = NextStep("out_of_scope", "request")
_EDITED: Final = NextStep("out_of_scope", "none")

_REFUSALS: Final = {"not_available": "unknown", _UNKNOWN.reason: "unproved", _OUT_OF_SCOPE.reason: "stale"}
"""The recorded reasons: unknown tool, unknown approval, or a call other than the approved one."""


async def evaluate(calls: AgentCalls, body: EvaluationBody) -> dict[str, Any]:
    """Return the decision on a call. Raises `Unavailable`.

    Without an approval, nothing is stored or permitted. With one, its permit is used: the decision is `true` once.
    """
    try:
        asked = find_call(calls, body)
    except NoSuchCall as error:
        await calls.note_refusal(error.refusal, body.resource.id)
        return _denial(error.reason, error.message)
    found = await (_use_approval(calls, asked, body.context) if APPROVAL in body.context else _decide(calls, asked))
    reason = found.get("context", {}).get("reason", "")
    if reason in _REFUSALS:
        await calls.note_refusal(Refused(reason, code=_REFUSALS[reason]), asked.tool)
    return found


async def _decide(calls: AgentCalls, asked: AskedCall) -> dict[str, Any]:
    judged = await calls.judge(asked.tool, asked.args, agent=asked.agent, user=asked.user)
    if judged.decision:
        return {"decision": True}
    if not judged.is_requestable:
        return _denial(judged.reason, judged.message)
    now = calls.now()
    evaluation, until = seal_denial(await calls.sealer(SEAL), asked, now)
    return {
        "decision": False,
        "context": {
            "evaluation_id": evaluation,
            "evaluated_at": now.isoformat(),
            "reason": judged.reason,
            "access_request": {"expires_at": until.isoformat()},
        },
    }


async def _use_approval(calls: AgentCalls, asked: AskedCall, context: dict[str, Any]) -> dict[str, Any]:
    """Require that the approved call is the call of the evaluation."""
    sealer, given = await calls.sealer(SEAL), context[APPROVAL]
    approval_id = given.get("id") if isinstance(given, dict) else None
    named = open_approval(sealer, approval_id) if isinstance(approval_id, str) else None
    if named is None:
        return await _refuse(calls, asked, _UNKNOWN)
    try:
        # Load it as the asking agent's: another agent's call does not exist for it.
        call = await calls.load(named.call, asked.agent)
    except NotFound:
        return await _refuse(calls, asked, _UNKNOWN)
    task, wanted = await view_of(calls, call), sha256_hex(asked.args)
    if (call.answer.tool, call.user) != (asked.tool, asked.user) or sha256_hex(task.proposed) != wanted:
        return await _refuse(calls, asked, _OUT_OF_SCOPE)
    # Check before the use: an edited approval must not be used up here.
    if task.approval is not None and not task.is_as_proposed:
        return await _refuse(calls, asked, _EDITED)
    try:
        permit = (await calls.use(call)).answer
    except BadRequest as error:
        if error.status != _CONFLICT:
            raise
        return await _refuse(calls, asked, _STEPS.get(error.code, _CLOSED), error.message)
    if sha256_hex(permit.args) != wanted:
        return await _refuse(calls, asked, _EDITED)
    reference = {name: value for name, value in task.approval_json(sealer).items() if name != "approved_at"}
    return {"decision": True, "context": {"approval": reference, "call": call.id, "key": permit.key}}


async def _refuse(calls: AgentCalls, asked: AskedCall, step: NextStep, words: str = "") -> dict[str, Any]:
    """A new request needs a requestable denial."""
    if step.action != "request":
        after = {"retry_after": RETRY_SECONDS} if step.action == "retry" else {}
        return _denial(step.reason, words, next_action=step.action, **after)
    anew = await _decide(calls, asked)
    fresh = anew.get("context", {})
    if "access_request" not in fresh:
        return _denial(step.reason, words, next_action="none")
    return {"decision": False, "context": {**fresh, "reason": step.reason, "next_action": "request"}}


def _denial(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    words = {"reason_user": {"en": message}} if message else {}
    return {"decision": False, "context": {"reason": reason, **words, **more}}
