"""Loads a request for its page, with the outcome of its call."""

import logging
from dataclasses import dataclass
from typing import Any

from signoff.approvals.card import first_arguments
from signoff.approvals.request_state import editors_of, find_denial, undo_seconds
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import ApprovalKey, parse_approval_id
from signoff.gateway.absence_service import list_absences
from signoff.gateway.approvals.question_service import is_external
from signoff.gateway.approvals.requester_words import read_words
from signoff.gateway.approvals.rule_values import rule_values
from signoff.gateway.approvals.value_check import unopened_pages
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.history.seen_values import find_new_recipients
from signoff.gateway.history.similar import find_similar
from signoff.gateway.pages.call_view import CallLine
from signoff.gateway.pages.card_view import CardPage, card_page
from signoff.gateway.pages.decided.similar_view import SimilarView, similar_view
from signoff.gateway.pages.previews.preview_view import load_preview
from signoff.gateway.pages.timeline_view import delivery_lines
from signoff.gateway.pages.turn_view import call_lines
from signoff.people.eligibility import approver_spec_of
from signoff.registry.manifest.room_sections import find_rooms
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.taken_requests import TakenRequest, TakenRequests

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedRequest:
    """A request, its loaded arguments, and its card for one visitor."""

    request: ApprovalRequest
    args: Any
    page: CardPage


async def open_request(
    deps: GatewayDeps, approval: str, visitor: Visitor, base: str = "", *, quotes: bool = False, compares: bool = False
) -> OpenedRequest:
    """Pending or settled. `base` is the address of its page outside the inbox.

    With `quotes`, it asks the server for the requester's words. If it `compares`, it finds new recipients.

    Raises `NotFound`, `ServerUnavailable`, `StoreUnavailable`.
    """
    key = own_approval(visitor, approval)
    loaded = await Conversations(deps).load(approval, visitor.person)
    request, args = loaded.request, loaded.args
    language = visitor.formatter.language
    # Draw a pending request from the store alone: its turn adds nothing, and the server may be down.
    line = None if request.state == "pending" else await _line(deps, key, language)
    rooms = deps.catalog.channels.rooms
    queue = DeliveryQueue(deps.store)
    rows = await queue.of_request(request.id, request.revision, replaced=True) if request.notify or rooms else []
    deliveries = delivery_lines(rows, deps.catalog.channels.declared, deps.people, language)
    left = await unopened_pages(deps.store, loaded, visitor.person) if request.state == "pending" else 0
    undo = undoable_seconds(loaded.rows, visitor)
    preview = await load_preview(deps, loaded, visitor, f"{base or f'/approvals/{approval}'}/preview")
    similar = await _similar(deps, request, visitor) if request.state == "pending" and not base else None
    wrote = await read_words(deps, loaded) if quotes else ""
    is_new = compares and request.state == "pending" and request.kind == "approval"
    recipients = await find_new_recipients(deps, loaded, visitor.person) if is_new else {}
    page = card_page(
        request,
        args,
        line,
        visitor,
        deps.people,
        deliveries,
        left,
        undo,
        preview,
        first=first_arguments(loaded.declaration),
        schema=loaded.declaration["input_schema"],
        compared=rule_values(request, args, deps.catalog, visitor.formatter),
        similar=similar,
        external=is_external(deps.catalog, request.actor),
        taken=await _taken(deps, request),
        editors=editors_of(loaded.rows.questions, loaded.rows.answers),
        in_room=bool(find_rooms(rooms, approver_spec_of(request).terms.approvers, request.tenant)),
        wrote=wrote,
        recipients=recipients,
        absences=await list_absences(deps, request.tenant) if request.state == "pending" else (),
    )
    return OpenedRequest(request, args, page)


async def _taken(deps: GatewayDeps, request: ApprovalRequest) -> TakenRequest | None:
    if request.state != "pending" or not deps.catalog.channels.rooms:
        return None
    return (await TakenRequests(deps.store).find(request.tenant, [request.id])).get(request.id)


async def _similar(deps: GatewayDeps, request: ApprovalRequest, visitor: Visitor) -> SimilarView | None:
    found = await find_similar(deps, request, visitor.person)
    return None if found is None else similar_view(found, request, visitor.formatter)


def undoable_seconds(rows: ApprovalRows, visitor: Visitor) -> float:
    """Return 0 if the visitor may not undo their denial."""
    denial = find_denial(rows.answers, visitor.person.id, visitor.undo_mark)
    is_open = denial is not None and denial.revision == rows.latest.revision and rows.latest.ended_at is None
    return undo_seconds((denial,), rows.now) if denial is not None and is_open else 0.0


async def _line(deps: GatewayDeps, key: ApprovalKey, language: str) -> CallLine | None:
    try:
        view = await deps.view(key.turn)
        asked = {call.call for call in view.calls if call.approval is not None}
        return call_lines(deps, view, language).get(key.call) if key.call in asked else None
    except (NotFound, ServerUnavailable):
        return None
    # The card comes from the store alone: a forged turn must not break it.
    except Exception as error:
        _log.warning("cannot read the outcome of %r (%s)", key.id, type(error).__name__)
        return None


async def open_card(
    deps: GatewayDeps, approval: str, visitor: Visitor, base: str = "", *, quotes: bool = False, compares: bool = False
) -> CardPage:
    """Arguments and errors as `open_request`."""
    return (await open_request(deps, approval, visitor, base, quotes=quotes, compares=compares)).page


def own_approval(visitor: Visitor, approval: str) -> ApprovalKey:
    """Raises `NotFound` for an invalid id and for another tenant."""
    key = parse_approval_id(approval)
    if key is None:
        raise NotFound(f"`{approval[:80]}` is not an approval id")
    if key.turn.tenant != visitor.person.tenant:
        raise NotFound(f"there is no request `{approval}`")
    return key
