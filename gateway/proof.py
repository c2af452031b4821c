"""A turn as the gateway shows it: what it says of questions and effects holds only where the store bears it out."""

from collections.abc import Collection
from typing import Any, Final

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import ApprovalKey, TurnKey, stand_in_id
from signoff.contracts.limits import MAX_FALLBACKS
from signoff.contracts.turn import CallView, TurnView
from signoff.registry.catalog import Catalog
from signoff.store.requests import RequestReader
from signoff.store.store import Store
from signoff.store.tickets import Ticket

UNPROVED: Final = "The turn says that this ran; the store has no ticket of it."


async def proved_view(view: TurnView, store: Store, requests: RequestReader, catalog: Catalog) -> TurnView:
    """`view` with its requests as the store has them, and no effect that has no ticket. Raises `StoreUnavailable`.

    Who runs a workflow can have it say anything; what was said in it, and what it says of itself, stay the turn's word.
    """
    turn = TurnKey(view.tenant, view.session, view.turn)
    tickets = [each for each in await store.tickets_of_turn(turn.workflow_id) if each.state == "done"]
    asked = {call.call: await _request(turn, call, requests) for call in view.calls}
    calls = []
    for call in view.calls:
        tried = [call, *(each for each in view.calls if _stands_in(each, call))]
        did = [each for each in tried if _has_ticket(each, tickets, asked[each.call])]
        outcome = _outcome(call.outcome, call.tool, catalog, ran=bool(did))
        # What a fallback did, and who approved that, counts for the call in whose place it was tried.
        credit = tried[-1] if outcome is not None and outcome.fallback else call
        credited = _credited(outcome, asked[credit.call])
        calls.append(call.model_copy(update={"approval": asked[call.call], "outcome": credited}))
    if view.result is None:
        return view.model_copy(update={"calls": tuple(calls)})
    known = {call.call: call.outcome for call in calls}
    outcomes = []
    for each in view.result.calls:
        ran = any(ticket.call == each.call and ticket.tool == each.tool for ticket in tickets)
        # A result may tell of calls of which the turn's view does not.
        outcomes.append(known.get(each.call) or _credited(_outcome(each, each.tool, catalog, ran=ran), None))
    told = view.result.model_copy(update={"calls": tuple(each for each in outcomes if each is not None)})
    return view.model_copy(update={"calls": tuple(calls), "result": told})


def _stands_in(other: CallView, call: CallView) -> bool:
    """Whether `other` was tried as a fallback of `call`: its id says so, which no call of a completion can have."""
    if other.stands_for != call.call:
        return False
    return other.call in {stand_in_id(call.call, number) for number in range(1, MAX_FALLBACKS + 1)}


def _has_ticket(call: CallView, tickets: Collection[Ticket], request: ApprovalRequest | None) -> bool:
    """Whether the store has that this call of this tool was done; of one that was asked about, that very action."""
    found = [each for each in tickets if each.call == call.call and each.tool == call.tool]
    # Judged anew since, by a rule that lets it pass, it is not what was asked any more.
    if request is None or request.kind == "in_doubt" or request.state != "approved":
        return bool(found)
    return any(each.key.partition("/")[0] == request.digest for each in found)


def _credited(outcome: CallOutcome | None, request: ApprovalRequest | None) -> CallOutcome | None:
    """`outcome` with nobody's name in it that the store does not have beside the call's question."""
    if outcome is None:
        return None
    names: dict[str, Any] = {"decided_by": "", "edited_by": ""}
    if request is not None:
        # An edit by a raw message, and by whom a person is known as, the turn alone can tell.
        names = {"decided_by": request.decided_by, "edited_by": request.edited_by}
    denied = outcome.denied
    if denied is not None and denied.source == "human":
        told = request is not None and request.state == "denied"
        who, why = (request.decided_by, request.reason) if told and request is not None else ("", denied.reason)
        denied = denied.model_copy(update={"decided_by": who, "reason": why or denied.reason})
    return outcome.model_copy(update=names | {"denied": denied})


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


async def _request(turn: TurnKey, call: CallView, requests: RequestReader) -> ApprovalRequest | None:
    said = call.approval
    if said is None:
        return None
    try:
        # By the turn and the call that were asked for: what the turn names may be somebody else's.
        loaded = await requests.load(ApprovalKey(turn, call.call).id)
    except NotFound:
        return None
    # Raw messages leave no answer in the store: where they count, the turn alone can tell what they said.
    by_turn = loaded.request.ended_as == "unsigned" or loaded.request.state == "pending"
    if by_turn and requests.takes_unsigned(loaded.request) and said.revision == loaded.request.revision:
        return said.model_copy(update={"id": loaded.request.id, "card": loaded.request.card})
    return loaded.request


def _outcome(outcome: CallOutcome | None, tool: str, catalog: Catalog, *, ran: bool) -> CallOutcome | None:
    if outcome is None or outcome.code != "ok" or outcome.gate == "dry_run" or ran:
        return outcome
    tools = catalog.named(tool)
    # What only reads takes no ticket, but where a use of it is counted.
    if tools and all(each.read_only and each.usage_limit is None for each in tools):
        return outcome
    return CallOutcome(call=outcome.call, tool=tool, code="in_doubt", gate="execute", value=Content(inline=UNPROVED))
