"""Makes spans of decisions and starts of turns. They join the caller's trace and link to the turn's spans."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import system_clock
from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.turn import TurnInput
from signoff.store.questions.turn_waits import TurnWaits
from signoff.store.store import Store
from signoff.telemetry.segments import SpanKey, segment_after, segment_at

if TYPE_CHECKING:
    from signoff.telemetry.span_sender import SpanSender

_HEADERS: Final = ("traceparent", "tracestate")
_CARRIER: Final[ContextVar[Mapping[str, str]]] = ContextVar("trace_headers", default=MappingProxyType({}))


def use_caller_trace(given: Mapping[str, object]) -> None:
    """Use the `traceparent` inside a message instead of its request's."""
    headers = {name: value for name in _HEADERS if isinstance(value := given.get(name), str)}
    if "traceparent" in headers:
        _CARRIER.set(headers)


class TraceHeadersMiddleware:
    """Stores a request's `traceparent` for the spans that its handling makes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            _CARRIER.set({name: headers[name] for name in _HEADERS if name in headers})
        await self._app(scope, receive, send)


class ActSpans:
    """Makes spans of starts and decisions. Makes none without a sender."""

    def __init__(self, store: Store, spans: "SpanSender | None" = None) -> None:
        self._waits = TurnWaits(store)
        self._spans = spans

    @asynccontextmanager
    async def start(self, turn: TurnInput) -> AsyncIterator[None]:
        if self._spans is None:
            yield
            return
        key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        first = segment_at(key.workflow_id, turn.principal.nonce, (), system_clock()).key
        attributes = {**_of_turn(key), "gen_ai.agent.name": turn.actor, "signoff.channel": turn.channel}
        with self._spans.act("signoff.start_turn", attributes, [first], _CARRIER.get()):
            yield

    @asynccontextmanager
    async def decision(self, request: ApprovalRequest, decision: Decision) -> AsyncIterator[None]:
        """Link the span to the segment before the request and the one after the decision."""
        if self._spans is None:
            yield
            return
        key = TurnKey(request.tenant, request.session, request.turn)
        attributes = {
            **_of_turn(key),
            "gen_ai.tool.name": request.tool,
            "signoff.approval.request": request.id,
            "signoff.approval.revision": request.revision,
            "signoff.approval.verdict": decision.verdict,
            "signoff.channel": decision.channel,
        }
        about = await self._about(key, request)
        with self._spans.act("signoff.decide", attributes, about, _CARRIER.get()):
            yield

    async def _about(self, key: TurnKey, request: ApprovalRequest) -> list[SpanKey]:
        nonce = request.requester.nonce
        after = segment_after(key.workflow_id, nonce, request.id, request.revision)
        try:
            waits = (await self._waits.read(key)).waits
        except StoreUnavailable:
            # The act itself reports that the store is down.
            return [after]
        return [segment_at(key.workflow_id, nonce, waits, request.opened_at or system_clock()).key, after]


def _of_turn(key: TurnKey) -> dict[str, str | int | float | bool]:
    return {"gen_ai.conversation.id": key.session, "signoff.tenant": key.tenant, "signoff.turn": key.turn}
