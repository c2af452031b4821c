"""The routes of AuthZEN: a policy decision point, and access requests for what it denies."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse

from signoff.gateway.auth.dependencies import OPEN, Deps, TokenAgent
from signoff.gateway.deps import GatewayDeps
from signoff.plugins.authzen.access_evaluation import RETRY_SECONDS, evaluate
from signoff.plugins.authzen.access_requests import cancel_task, read_task, submit
from signoff.plugins.authzen.access_task import AccessTaskView
from signoff.plugins.authzen.evaluation_body import EvaluationBody, PointBody, SubmissionBody, parse_body
from signoff.plugins.authzen.problems import EVALUATION, EVALUATION_FAULTS, PROBLEMS, REQUESTS, echo_request_id
from signoff.plugins.authzen.sealed_ids import AUTHZEN_KEY

CONFIGURATION: Final = "/.well-known/authzen-configuration"
CAPABILITY: Final = "urn:openid:authzen:capability:access-request"
router = APIRouter(tags=["authzen"])

Key = Annotated[
    str | None, Header(alias="Idempotency-Key", description="The same key again is the same request; else the denial.")
]


def _body(kind: type[PointBody]) -> dict[str, Any]:
    # Read as bytes: what is wrong with one is said in the shape of this dialect.
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.get(CONFIGURATION, dependencies=[OPEN], summary="The policy decision point", response_model=None)
async def show_configuration(deps: Deps) -> dict[str, Any]:
    """Metadata of the policy decision point (Authorization API 1.0, 9)."""
    base = deps.settings.public_url
    return {
        "policy_decision_point": base,
        "access_evaluation_endpoint": f"{base}{EVALUATION}",
        "access_request_endpoint": f"{base}{REQUESTS}",
        "capabilities": [CAPABILITY],
    }


@router.post(
    EVALUATION,
    summary="Ask whether a call may be made",
    response_class=JSONResponse,
    responses=dict(EVALUATION_FAULTS),
    openapi_extra=_body(EvaluationBody),
)
async def evaluate_access(request: Request, deps: Deps, caller: TokenAgent) -> Response:
    """`{"decision": true}` or `false`, by the rules alone: nobody is asked, nothing is kept. With the approval of a
    task in its context it is `true` once, which uses that approval.
    """
    body = parse_body(EvaluationBody, await request.body())
    response = JSONResponse(await evaluate(deps, caller, body))
    echo_request_id(request, response)
    return response


@router.post(
    REQUESTS,
    status_code=202,
    summary="Ask that a denied call be approved",
    response_class=JSONResponse,
    responses={201: {"description": "It is settled."}, **PROBLEMS},
    openapi_extra=_body(SubmissionBody),
)
async def request_access(request: Request, deps: Deps, caller: TokenAgent, key: Key = None) -> Response:
    """202 with a task while people are asked, 201 where it is settled. It is an external call as any other."""
    view = await submit(deps, caller, parse_body(SubmissionBody, await request.body()), key)
    return await _answer(request, deps, view, 202 if view.status == "pending" else 201)


@router.get(
    f"{REQUESTS}/{{task}}",
    summary="One access request as it stands",
    response_class=JSONResponse,
    responses=dict(PROBLEMS),
)
async def show_task(task: str, request: Request, deps: Deps, caller: TokenAgent) -> Response:
    """`pending`, `approved` with the approval to evaluate with, `denied`, `expired` or `cancelled`."""
    return await _answer(request, deps, await read_task(deps, caller, task), 200)


@router.post(
    f"{REQUESTS}/{{task}}/cancel",
    summary="Withdraw an access request",
    response_class=JSONResponse,
    responses=dict(PROBLEMS),
)
async def cancel_request(task: str, request: Request, deps: Deps, caller: TokenAgent) -> Response:
    """Nobody is asked any more. 409 where it is over."""
    return await _answer(request, deps, await cancel_task(deps, caller, task, request), 200)


async def _answer(request: Request, deps: GatewayDeps, view: AccessTaskView, status: int) -> Response:
    key = await deps.store.secret_key(AUTHZEN_KEY)
    body = view.as_json(key, f"{deps.settings.public_url}{REQUESTS}")
    headers = {"retry-after": str(RETRY_SECONDS)} if view.status == "pending" else {}
    if status != 200:
        headers["location"] = body["task"]["status_endpoint"]
    response = JSONResponse(body, status, headers)
    echo_request_id(request, response)
    return response
