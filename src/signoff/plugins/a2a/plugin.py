"""The routes of A2A: the cards of exposed actors, and one JSON-RPC address per actor."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

from fastapi import Depends, Request, Response
from fastapi.responses import JSONResponse

from signoff.calls import Exposed, External, PeerTurns, Turns
from signoff.contracts.errors import NotFound, Refused, SignoffError
from signoff.contracts.ids import TurnKey, turn_name
from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.a2a.agent_card import CARD_PATH, CARD_SECONDS, PEERS, AgentCards, consumed_types
from signoff.plugins.a2a.peer_tasks import STOP_SECONDS, WAIT_SECONDS, PeerTasks, TaskUpdate
from signoff.plugins.a2a.rpc_error import METHOD_NOT_FOUND, NO_PUSH, UNSUPPORTED, RpcError, rpc_error_of
from signoff.plugins.a2a.rpc_request import (
    ListParams,
    RpcRequest,
    SendParams,
    TaskParams,
    check_version,
    parse_params,
    parse_request,
)
from signoff.plugins.a2a.task_view import TERMINAL, PeerTask

first_card = PluginRouter(CARD_PATH, tag="peers")
router = PluginRouter(PEERS, tag="peers", is_typed=True)
_PUSH: Final = frozenset(
    f"{verb}TaskPushNotificationConfig{ending}"
    for verb, ending in (("Create", ""), ("Get", ""), ("List", "s"), ("Delete", ""))
)


async def _cards(request: Request, external: External) -> AgentCards:
    state = request.app.state
    if not hasattr(state, "agent_cards"):
        state.agent_cards = AgentCards(external.exposed, external.public_url)
    cards: AgentCards = state.agent_cards
    return cards


Cards = Annotated[AgentCards, Depends(_cards)]


@first_card.get("", summary="Get the card of the first exposed actor", caller="anyone")
async def show_first_card(request: Request, cards: Cards) -> Response:
    """An agent card of A2A 1.0, for anyone; 404 if no tool is `peer_exposed`."""
    return _card(request, cards)


@router.get(f"/{{actor}}{CARD_PATH}", summary="Get the card of an exposed actor", caller="anyone")
async def show_card(actor: str, request: Request, cards: Cards) -> Response:
    """The card of a named actor."""
    return _card(request, cards, actor)


@router.post("/{actor}", summary="Send A2A requests to an exposed actor", caller="peer", body={"type": "object"})
async def call_method(actor: str, request: Request, external: External, cards: Cards, turns: Turns) -> Response:
    """JSON-RPC of A2A 1.0: `SendMessage`, `SendStreamingMessage`, `GetTask`, `ListTasks`, `CancelTask`,
    `SubscribeToTask`. A peer sees its own tasks alone, and decides nothing.
    """
    if cards.card(actor) is None:
        raise NotFound("there is no such agent")
    tasks = PeerTasks(turns, external.exposed, actor, external.public_url)
    consumes = consumed_types(request.headers.get("a2a-extensions", ""))
    session = _PeerCall(turns, tasks, consumes, external.exposed)
    named: RpcRequest | None = None
    try:
        named = parse_request(await request.body())
        check_version(request.headers.get("a2a-version", "") or request.query_params.get("A2A-Version", ""))
        return await session.answer(named)
    except RpcError as error:
        return JSONResponse(_error(named, error))
    except SignoffError as error:
        if isinstance(error, Refused) and error.code == "unauthenticated":
            raise
        return JSONResponse(_error(named, rpc_error_of(error)))


class _PeerCall:
    """Answers one request of a peer."""

    def __init__(self, turns: PeerTurns, tasks: PeerTasks, consumes: frozenset[str], exposed: Exposed) -> None:
        self._turns = turns
        self._tasks = tasks
        self._consumes = consumes
        self._withheld = exposed.withheld

    async def answer(self, named: RpcRequest) -> Response:
        match named.method:
            case "SendMessage":
                params = parse_params(named, SendParams)
                return self._result(named, {"task": self._json(await self._first_state(params))})
            case "SendStreamingMessage":
                params = parse_params(named, SendParams)
                # Check first: a rejected request must not have started a turn.
                self._turns.refuse_more()
                return self._stream(named, await self._tasks.send(params))
            case "SubscribeToTask":
                return await self._subscribe(named)
            case "GetTask":
                key = await self._tasks.find(parse_params(named, TaskParams).id)
                return self._result(named, self._json(await self._tasks.read(key)))
            case "CancelTask":
                key = await self._tasks.find(parse_params(named, TaskParams).id)
                await self._tasks.stop(key)
                async with self._turns.waiting(STOP_SECONDS, "") as seconds:
                    return self._result(named, self._json(await self._tasks.wait_for(key, TERMINAL, seconds)))
            case "ListTasks":
                wanted = parse_params(named, ListParams)
                # Each reads the state of up to a full list of tasks.
                async with self._turns.hold():
                    return self._result(named, await self._list(wanted))
            case "GetExtendedAgentCard":
                raise RpcError(UNSUPPORTED, "there is no extended card: the public one is complete")
        if named.method in _PUSH:
            raise RpcError(NO_PUSH, "this agent sends no push notifications; follow the task, or read it again")
        raise RpcError(METHOD_NOT_FOUND, f"there is no method `{named.method[:60]}`")

    async def _first_state(self, params: SendParams) -> PeerTask:
        key = await self._tasks.send(params)
        if params.configuration.return_immediately:
            return await self._tasks.read_at_once(key)
        # Each asks a worker repeatedly while it waits.
        async with self._turns.waiting(WAIT_SECONDS, turn_name(key)) as seconds:
            return await self._tasks.wait_for_answer(key, seconds)

    async def _list(self, params: ListParams) -> dict[str, Any]:
        found, following, total = await self._tasks.list_page(params)
        shown = [each.as_json(self._consumes, self._withheld, artifacts=params.include_artifacts) for each in found]
        return {"tasks": shown, "nextPageToken": following, "pageSize": params.page_size, "totalSize": total}

    async def _subscribe(self, named: RpcRequest) -> Response:
        key = await self._tasks.find(parse_params(named, TaskParams).id)
        task = await self._tasks.read(key)
        if task.is_over:
            raise RpcError(UNSUPPORTED, f"the task is {task.state}: nothing follows", taskId=task.id)
        return self._stream(named, key)

    def _stream(self, named: RpcRequest, key: TurnKey) -> Response:
        return self._turns.stream(self._events(named, key))

    async def _events(self, named: RpcRequest, key: TurnKey) -> AsyncGenerator[str, None]:
        try:
            async for update in self._tasks.follow(key):
                if update.now is None:
                    yield ": still here\n\n"
                for each in self._changes(update):
                    yield _event(_answer(named, each))
        except RpcError as error:
            yield _event(_error(named, error))
        except SignoffError as error:
            yield _event(_error(named, rpc_error_of(error)))

    def _changes(self, update: TaskUpdate) -> list[dict[str, Any]]:
        """Return the task first. Later, its artifact precedes the final status."""
        now, before = update
        if now is None:
            return []
        if before is None:
            return [{"task": self._json(now)}]
        about = {"taskId": now.id, "contextId": now.context}
        changes: list[dict[str, Any]] = []
        artifact = now.artifact(self._consumes, self._withheld)
        if artifact is not None and now.parts != before.parts:
            changes.append({"artifactUpdate": {**about, "artifact": artifact, "lastChunk": True}})
        full = self._json(now)
        extra = {"metadata": full["metadata"]} if "metadata" in full else {}
        return [*changes, {"statusUpdate": {**about, "status": now.status(), **extra}}]

    def _json(self, task: PeerTask) -> dict[str, Any]:
        return task.as_json(self._consumes, self._withheld)

    def _result(self, named: RpcRequest, result: Mapping[str, Any]) -> Response:
        return JSONResponse(_answer(named, result))


def _card(request: Request, cards: AgentCards, actor: str = "") -> Response:
    card = cards.card(actor)
    if card is None:
        raise NotFound("no tool is for other agents" if not actor else "there is no such agent")
    headers = {"etag": card.etag, "cache-control": f"public, max-age={CARD_SECONDS}"}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if card.etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(card.body, media_type="application/json", headers=headers)


def _answer(named: RpcRequest, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": named.id, "result": result}


def _error(named: RpcRequest | None, error: RpcError) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None if named is None else named.id, "error": error.as_json()}


def _event(body: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


class A2aPlugin(BasePlugin):
    """Adds the routes of other agents that speak A2A."""

    name: ClassVar[str] = "a2a"

    def routers(self) -> Sequence[PluginRouter]:
        return (first_card, router)
