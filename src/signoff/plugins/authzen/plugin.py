"""The routes of AuthZEN: a policy decision point, and access requests for its denials."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

from fastapi import Header, Request, Response
from fastapi.responses import JSONResponse

from signoff.calls import AgentCalls, Calls, External, ExternalCalls
from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.authzen.access_evaluation import RETRY_SECONDS, evaluate
from signoff.plugins.authzen.access_requests import cancel_task, read_task, submit
from signoff.plugins.authzen.access_task import AccessTaskView
from signoff.plugins.authzen.evaluation_body import EvaluationBody, SubmissionBody, parse_body
from signoff.plugins.authzen.problems import (
    ACCESS,
    EVALUATION,
    EVALUATION_FAULTS,
    PROBLEMS,
    REQUESTS,
    answer_fault,
    echo_request_id,
)
from signoff.plugins.authzen.sealed_ids import SEAL

CONFIGURATION: Final = "/.well-known/authzen-configuration"
CAPABILITY: Final = "urn:openid:authzen:capability:access-request"
configuration = PluginRouter(CONFIGURATION, tag="authzen")
router = PluginRouter(ACCESS, tag="authzen", fault=answer_fault)

Key = Annotated[
    str | None, Header(alias="Idempotency-Key", description="The same key again is the same request; else the denial.")
]


@configuration.get("", summary="Describe the policy decision point", caller="anyone")
async def show_configuration(external: External) -> dict[str, Any]:
    """Metadata of the policy decision point (Authorization API 1.0, 9)."""
    base = external.public_url
    return {
        "policy_decision_point": base,
        "access_evaluation_endpoint": f"{base}{EVALUATION}",
        "access_request_endpoint": f"{base}{REQUESTS}",
        "capabilities": [CAPABILITY],
    }


@router.post(
    "/v1/evaluation",
    summary="Evaluate a call",
    responses=EVALUATION_FAULTS,
    body=EvaluationBody,
)
async def evaluate_access(request: Request, calls: Calls) -> Response:
    """`{"decision": true}` or `false`, by the rules alone, without any request or stored data. With the approval of a
    task in its context it is `true` once, which uses that approval.
    """
    body = parse_body(EvaluationBody, await request.body())
    response = JSONResponse(await evaluate(calls, body))
    echo_request_id(request, response)
    return response


@router.post(
    "/v1/requests",
    status=202,
    summary="Request approval of a denied call",
    responses={201: {"description": "It is settled."}, **PROBLEMS},
    body=SubmissionBody,
)
async def request_access(request: Request, calls: Calls, external: External, key: Key = None) -> Response:
    """202 with a task while people are asked, 201 where it is settled. It is an external call as any other."""
    view = await submit(calls, parse_body(SubmissionBody, await request.body()), key)
    return await _answer(request, calls, external, view, 202 if view.status == "pending" else 201)


@router.get(
    "/v1/requests/{task}",
    summary="Get an access request",
    responses=PROBLEMS,
)
async def show_task(task: str, request: Request, calls: Calls, external: External) -> Response:
    """`pending`, `approved` with the approval to evaluate with, `denied`, `expired` or `cancelled`."""
    return await _answer(request, calls, external, await read_task(calls, task), 200)


@router.post(
    "/v1/requests/{task}/cancel",
    summary="Withdraw an access request",
    responses=PROBLEMS,
)
async def cancel_request(task: str, request: Request, calls: Calls, external: External) -> Response:
    """Withdraws the request. 409 if it is over."""
    return await _answer(request, calls, external, await cancel_task(calls, task), 200)


async def _answer(
    request: Request, calls: AgentCalls, external: ExternalCalls, view: AccessTaskView, status: int
) -> Response:
    body = view.as_json(await calls.sealer(SEAL), f"{external.public_url}{REQUESTS}")
    headers = {"retry-after": str(RETRY_SECONDS)} if view.status == "pending" else {}
    if status != 200:
        headers["location"] = body["task"]["status_endpoint"]
    response = JSONResponse(body, status, headers)
    echo_request_id(request, response)
    return response


class AuthzenPlugin(BasePlugin):
    """Adds the routes of policy enforcement points."""

    name: ClassVar[str] = "authzen"

    def routers(self) -> Sequence[PluginRouter]:
        return (configuration, router)
