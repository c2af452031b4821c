"""Takes access requests: each is an external call, whose task says how it stands. Nothing is decided here."""

from typing import Final

from starlette.requests import Request

from signoff.calls.call_naming import naming
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import BadRequest, Conflict, NotFound, Refused
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.requests import CallBody
from signoff.gateway.auth.caller import AuthenticatedCaller, own_tenant
from signoff.gateway.calls.call_proposer import agent_of, propose
from signoff.gateway.calls.call_reader import find_request, load_call, load_value, read_call
from signoff.gateway.calls.call_refusals import note_refusal
from signoff.gateway.calls.call_withdrawal import withdraw
from signoff.gateway.calls.external_turn import ExternalTurn
from signoff.gateway.deps import GatewayDeps
from signoff.plugins.authzen.access_task import AccessTaskView, find_approval
from signoff.plugins.authzen.asked_call import AskedCall, NoSuchCall, find_call
from signoff.plugins.authzen.evaluation_body import SubmissionBody
from signoff.plugins.authzen.problems import REQUESTS, AccessProblem
from signoff.plugins.authzen.sealed_ids import AUTHZEN_KEY, open_denial, open_task

_WORDS: Final = "business_justification"
"""The member of a request's context in which people are told why."""


async def submit(
    deps: GatewayDeps, caller: AuthenticatedCaller | None, body: SubmissionBody, key: str | None
) -> AccessTaskView:
    """Proposes the call that was denied, once for each denial or `key`. Raises `AccessProblem` and as `propose`."""
    asked = await _find_denied(deps, caller, body)
    evaluation = body.denial.evaluation_id
    denial = open_denial(await deps.store.secret_key(AUTHZEN_KEY), evaluation)
    if denial is None or denial.digest != asked.digest:
        problem = AccessProblem("invalid_denial_binding", "this is not the call that was denied under `evaluation_id`")
        await _note(deps, caller, problem, "unproved", asked.tool)
        raise problem
    if deps.clock() >= denial.expires_at:
        raise AccessProblem("expired_denial", "the denial is too old; evaluate anew")
    says = body.context.get(_WORDS)
    proposal = CallBody(
        tool=asked.tool,
        args=asked.args,
        agent=asked.agent,
        user=asked.person.id,
        says=says[:REASON_CHARS] if isinstance(says, str) else "",
    )
    name = sha256_hex(["access request", evaluation if key is None else key])
    try:
        with naming("`Idempotency-Key`", key):
            turn, _ = await propose(deps, proposal, caller, name, "")
    except Conflict as error:
        await _note(deps, caller, error, error.code, asked.tool)
        raise AccessProblem("duplicate_request", error.message) from None
    return await view_of(deps, await load_call(deps, turn.name, asked.agent, asked.tenant))


async def _note(
    deps: GatewayDeps, caller: AuthenticatedCaller | None, error: Refused, code: str, tool: str = ""
) -> None:
    # By a code of ours: those of this dialect are not known elsewhere.
    await note_refusal(deps, caller, REQUESTS, Refused(error.message, code=code), tool)


async def _find_denied(deps: GatewayDeps, caller: AuthenticatedCaller | None, body: SubmissionBody) -> AskedCall:
    try:
        asked = find_call(deps, caller, body)
    except NoSuchCall as error:
        await _note(deps, caller, error.refusal, error.refusal.code, body.resource.id)
        raise AccessProblem("not_requestable", error.message) from None
    actor = None if body.client is None else body.client.actor
    # What is claimed is proved by the token alone: it is the agent's own, and says nothing of anybody behind it.
    if actor is not None and (actor.id != asked.agent or actor.act is not None):
        raise Refused("`client.actor` is not the agent of this token", code="not_allowed")
    return asked


async def read_task(deps: GatewayDeps, caller: AuthenticatedCaller | None, task: str) -> AccessTaskView:
    """Returns a task of this agent as it stands. Raises `AccessProblem`, `Unavailable`."""
    return await view_of(deps, await _load(deps, caller, task))


async def cancel_task(
    deps: GatewayDeps, caller: AuthenticatedCaller | None, task: str, request: Request
) -> AccessTaskView:
    """Withdraws the call of a task that is pending. Raises `AccessProblem`, `Unavailable`."""
    turn = await _load(deps, caller, task)
    if (await view_of(deps, turn)).status != "pending":
        raise AccessProblem("invalid_task_state", "the task is over")
    try:
        await withdraw(deps, turn, request)
    except BadRequest as error:
        raise AccessProblem("invalid_task_state", error.message) from None
    found = await view_of(deps, turn)
    # It was decided just before.
    if found.status not in ("cancelled", "pending"):
        raise AccessProblem("invalid_task_state", "the task is over")
    return found


async def view_of(deps: GatewayDeps, turn: ExternalTurn) -> AccessTaskView:
    """Returns the task of a call as it stands. Raises `Unavailable`."""
    answer, proposed = await read_call(deps, turn), await load_value(deps, turn, turn.call.args)
    approval = find_approval(answer, await find_request(deps, turn), proposed, deps.clock())
    return AccessTaskView(turn.given.actor, answer, proposed, approval)


async def _load(deps: GatewayDeps, caller: AuthenticatedCaller | None, task: str) -> ExternalTurn:
    named = open_task(await deps.store.secret_key(AUTHZEN_KEY), task)
    missing = AccessProblem("unknown_task", "there is no such task")
    if named is None:
        await _note(deps, caller, missing, "unknown")
        raise missing
    try:
        agent, _ = agent_of(deps, caller, named.agent)
        return await load_call(deps, named.call, agent, own_tenant(caller, None))
    # Another agent's is answered like one that is not there.
    except (NotFound, Refused) as error:
        await _note(deps, caller, error, error.code)
        raise missing from None
