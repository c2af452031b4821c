"""The routes of the Agent Approval Protocol: adapters ask whether a call may run, wait, use the approval and report."""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from signoff.calls import Calls, naming
from signoff.formats.durations import seconds
from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.aap.approval_request import ApprovalRequestView
from signoff.plugins.aap.approval_requests import ApprovalRequests
from signoff.plugins.aap.problems import PROBLEMS, REQUEST_ID, ApprovalProblem, answer_fault
from signoff.plugins.aap.request_body import AdapterBody, CreateBody, OutcomeReport, parse_body, read_duration

WAIT_SECONDS: Final = 30.0
"""The longest wait of one request."""
Key = Annotated[
    str | None, Header(alias="Idempotency-Key", description="Needed; the same key again is the same request, or use.")
]
Wait = Annotated[str | None, Query(description="How long to wait for people, as `25s`; at most 30 seconds.")]


async def _of_agent(agent: str, request: Request, calls: Calls) -> None:
    request.state.approval_requests = ApprovalRequests(calls, calls.asker(agent))


async def _of_agent_for_user(agent: str, user: str, request: Request, calls: Calls) -> None:
    request.state.approval_requests = ApprovalRequests(calls, calls.asker(agent, user))


async def _own_requests(request: Request) -> ApprovalRequests:
    found: ApprovalRequests = request.state.approval_requests
    return found


Own = Annotated[ApprovalRequests, Depends(_own_requests)]


async def create_request(own: Own, request: Request, key: Key = None) -> Response:
    """Returns 201 with a new request, pending or settled; 200 for a key that was used before."""
    body = parse_body(CreateBody, await request.body())
    with naming("`Idempotency-Key`", key):
        view, is_new = await own.create(body, _require_key(key))
    return _answer(view, 201 if is_new else 200)


async def show_request(own: Own, id: str, wait: Wait = None) -> Response:
    """Returns it as `pending`, `approved`, `denied`, `expired` or `cancelled`."""
    return _answer(await own.show(id, _read_wait(wait)))


async def cancel_request(own: Own, id: str) -> Response:
    """Withdraws the request. 409 `already_terminal` if it is settled."""
    with naming("request", id):
        return _answer(await own.cancel(id))


async def consume_request(own: Own, id: str, key: Key = None) -> Response:
    """Uses the approval. The call may run after a success.

    409 `already_consumed`, `approval_expired` or `not_approved`.
    """
    with naming("request", id):
        return _answer(await own.consume(id, _require_key(key)))


async def report_request(own: Own, id: str, request: Request) -> Response:
    """Records the first report. 409 `not_consumed` before its use, `outcome_conflict` after a different report."""
    with naming("request", id):
        return _answer(await own.report(id, parse_body(OutcomeReport, await request.body())))


class _Route(NamedTuple):
    method: str
    path: str
    function: Callable[..., Awaitable[Response]]
    summary: str
    body: type[AdapterBody] | None = None


_ROUTES: Final = (
    _Route("POST", "", create_request, "Ask whether a call may run", CreateBody),
    _Route("GET", "/{id}", show_request, "Get a request"),
    _Route("DELETE", "/{id}", cancel_request, "Withdraw a pending request"),
    _Route("POST", "/{id}/consume", consume_request, "Use an approval, once"),
    _Route("POST", "/{id}/outcome", report_request, "Report the outcome of a call", OutcomeReport),
)
_NEW: Final[dict[int | str, dict[str, Any]]] = {201: {"description": "A new request."}}


def _router() -> PluginRouter:
    router = PluginRouter("/aap", tag="aap", fault=answer_fault)
    # An agent that may act for several people has an address for each.
    for place, whose in (("/{agent}", _of_agent), ("/{agent}/users/{user}", _of_agent_for_user)):
        for each in _ROUTES:
            router.add(
                each.method,
                f"{place}/v1/requests{each.path}",
                each.function,
                summary=each.summary,
                body=each.body,
                takes_nothing=each.function is consume_request,
                dependencies=(whose,),
                responses={**PROBLEMS, **(_NEW if each.body is CreateBody else {})},
            )
    return router


router = _router()


def _require_key(key: str | None) -> str:
    if not key:
        raise ApprovalProblem("missing_idempotency_key", "send an `Idempotency-Key` that is unique among your calls")
    return key


def _read_wait(given: str | None) -> float:
    if given is None:
        return 0.0
    try:
        return min(seconds(read_duration(given)), WAIT_SECONDS)
    except ValueError as error:
        raise ApprovalProblem("malformed", f"`wait`: {error}") from None


def _answer(view: ApprovalRequestView, status: int = 200) -> Response:
    return JSONResponse(view.as_json(), status, {REQUEST_ID: str(uuid.uuid4())})


class AapPlugin(BasePlugin):
    """Adds the routes of the Agent Approval Protocol."""

    name: ClassVar[str] = "aap"

    def routers(self) -> Sequence[PluginRouter]:
        return (router,)
