"""A turn as the gateway shows it: what it says of questions and effects holds only where the store bears it out."""

from collections.abc import Collection
from typing import Final

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.turn import CallView, TurnView
from signoff.registry.catalog import Catalog
from signoff.store.requests import RequestReader
from signoff.store.store import Store

UNPROVED: Final = "The turn says that this ran; the store has no ticket of it."


async def proved_view(view: TurnView, store: Store, requests: RequestReader, catalog: Catalog) -> TurnView:
    """`view` with its requests as the store has them, and no effect that has no ticket. Raises `StoreUnavailable`.

    Who runs a workflow can have it say anything; who asked and what was said in it stay the turn's word.
    """
    if not view.calls:
        return view
    turn = TurnKey(view.tenant, view.session, view.turn)
    tickets = await store.tickets_of_turn(turn.workflow_id)
    done = {ticket.call for ticket in tickets if ticket.state == "done"}
    # What a fallback did counts for the call in whose place it was tried.
    done |= {call.stands_for for call in view.calls if call.stands_for and call.call in done}
    calls = []
    for call in view.calls:
        changes = {"approval": await _request(call, requests), "outcome": _outcome(call, catalog, done)}
        calls.append(call.model_copy(update=changes))
    if view.result is None:
        return view.model_copy(update={"calls": tuple(calls)})
    known = {call.call: call.outcome for call in calls}
    outcomes = tuple(known.get(each.call) or each for each in view.result.calls)
    return view.model_copy(update={"calls": tuple(calls), "result": view.result.model_copy(update={"calls": outcomes})})


async def ended_view(view: TurnView, requests: RequestReader) -> TurnView:
    """A turn that is over, read without a worker, with what was asked in it. Raises `StoreUnavailable`."""
    turn = TurnKey(view.tenant, view.session, view.turn)
    calls = []
    for call in view.calls:
        try:
            found = (await requests.load(ApprovalKey(turn, call.call).id)).request
        except NotFound:
            calls.append(call)
            continue
        calls.append(call.model_copy(update={"approval": found}))
    return view.model_copy(update={"calls": tuple(calls)})


async def _request(call: CallView, requests: RequestReader) -> ApprovalRequest | None:
    said = call.approval
    if said is None:
        return None
    try:
        loaded = await requests.load(said.id)
    except NotFound:
        return None
    # Raw messages leave no answer in the store: where they count, the turn alone can tell what they said.
    by_turn = loaded.request.ended_as == "unsigned" or loaded.request.state == "pending"
    if by_turn and requests.takes_unsigned(loaded.request) and said.revision == loaded.request.revision:
        return said.model_copy(update={"card": loaded.request.card})
    return loaded.request


def _outcome(call: CallView, catalog: Catalog, done: Collection[str]) -> CallOutcome | None:
    outcome = call.outcome
    if outcome is None or outcome.code != "ok" or outcome.gate == "dry_run" or call.call in done:
        return outcome
    tools = catalog.named(call.tool)
    # What only reads takes no ticket, but where a use of it is counted.
    if tools and all(tool.read_only and tool.usage_limit is None for tool in tools):
        return outcome
    return CallOutcome(call=call.call, tool=call.tool, code="in_doubt", gate="execute", value=Content(inline=UNPROVED))
