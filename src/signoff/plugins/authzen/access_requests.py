"""Handles access requests: each is an external call. Nothing is decided here."""

from typing import Final

from signoff.calls import AgentCalls, CallBody, CallHandle, naming
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import BadRequest, Conflict, NotFound, Refused
from signoff.contracts.limits import REASON_CHARS
from signoff.plugins.authzen.access_task import AccessTaskView, find_approval
from signoff.plugins.authzen.asked_call import AskedCall, NoSuchCall, find_call
from signoff.plugins.authzen.evaluation_body import SubmissionBody
from signoff.plugins.authzen.problems import AccessProblem
from signoff.plugins.authzen.sealed_ids import SEAL, open_denial, open_task

_WORDS: Final = "business_justification"
"""The member of a request's context with the reason for approvers."""


async def submit(calls: AgentCalls, body: SubmissionBody, key: str | None) -> AccessTaskView:
    """Propose the denied call, once for each denial or `key`. Raises `AccessProblem`, and as `propose` does."""
    asked = await _find_denied(calls, body)
    evaluation = body.denial.evaluation_id
    denial = open_denial(await calls.sealer(SEAL), evaluation)
    if denial is None or denial.digest != asked.digest:
        problem = AccessProblem("invalid_denial_binding", "this is not the call that was denied under `evaluation_id`")
        await _note(calls, problem, "unproved", asked.tool)
        raise problem
    if calls.now() >= denial.expires_at:
        raise AccessProblem("expired_denial", "the denial is too old; evaluate anew")
    says = body.context.get(_WORDS)
    proposal = CallBody(
        tool=asked.tool,
        args=asked.args,
        agent=asked.agent,
        user=asked.user,
        says=says[:REASON_CHARS] if isinstance(says, str) else "",
    )
    name = sha256_hex(["access request", evaluation if key is None else key])
    try:
        with naming("`Idempotency-Key`", key):
            call = await calls.propose(proposal, key=name)
    except Conflict as error:
        await _note(calls, error, error.code, asked.tool)
        raise AccessProblem("duplicate_request", error.message) from None
    return await view_of(calls, call)


async def _note(calls: AgentCalls, error: Refused, code: str, tool: str = "") -> None:
    # Under a code of ours: this dialect's codes are unknown elsewhere.
    await calls.note_refusal(Refused(error.message, code=code), tool)


async def _find_denied(calls: AgentCalls, body: SubmissionBody) -> AskedCall:
    try:
        asked = find_call(calls, body)
    except NoSuchCall as error:
        await _note(calls, error.refusal, error.refusal.code, body.resource.id)
        raise AccessProblem("not_requestable", error.message) from None
    actor = None if body.client is None else body.client.actor
    # The token proves only the agent, and nothing about any person behind it.
    if actor is not None and (actor.id != asked.agent or actor.act is not None):
        raise Refused("`client.actor` is not the agent of this token", code="not_allowed")
    return asked


async def read_task(calls: AgentCalls, task: str) -> AccessTaskView:
    """Read a task of this agent. Raises `AccessProblem`, `Unavailable`."""
    return await view_of(calls, await _load(calls, task))


async def cancel_task(calls: AgentCalls, task: str) -> AccessTaskView:
    """Withdraw the call of a pending task. Raises `AccessProblem`, `Unavailable`."""
    call = await _load(calls, task)
    if (await view_of(calls, call)).status != "pending":
        raise AccessProblem("invalid_task_state", "the task is over")
    try:
        await calls.withdraw(call)
    except BadRequest as error:
        raise AccessProblem("invalid_task_state", error.message) from None
    found = await view_of(calls, call)
    # It was decided just before.
    if found.status not in ("cancelled", "pending"):
        raise AccessProblem("invalid_task_state", "the task is over")
    return found


async def view_of(calls: AgentCalls, call: CallHandle) -> AccessTaskView:
    """Return the present task of a call. Raises `Unavailable`."""
    answer, proposed = (await calls.wait(call, 0)).answer, await calls.arguments(call)
    approval = find_approval(answer, await calls.question(call), proposed, calls.now())
    return AccessTaskView(call.agent, answer, proposed, approval)


async def _load(calls: AgentCalls, task: str) -> CallHandle:
    named = open_task(await calls.sealer(SEAL), task)
    missing = AccessProblem("unknown_task", "there is no such task")
    if named is None:
        await _note(calls, missing, "unknown")
        raise missing
    try:
        return await calls.load(named.call, named.agent)
    # Another agent's task gets the same answer as a missing one.
    except (NotFound, Refused) as error:
        await _note(calls, error, error.code)
        raise missing from None
