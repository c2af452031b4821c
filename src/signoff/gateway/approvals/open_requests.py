"""Adds pending requests to the views of turns and sessions, as the store proves them.

Drops such parts in a workflow's own claims: a forged turn could ask for anything.
"""

from collections.abc import Iterable

from signoff.approvals.request_part import part_from_request
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import RESERVED_PART_TYPES
from signoff.contracts.responses import AnswerLinks
from signoff.contracts.session_messages import SessionTurnView, SessionView
from signoff.contracts.turn import ResponsePart, TurnView
from signoff.formats.replace import replace
from signoff.store.request_reader import RequestReader

_GOES_ON = ("working", "waiting")


def add_requests_to_turn(view: TurnView, public_url: str) -> TurnView:
    """The turn's requests must already be proven."""
    waiting = [call.approval for call in view.calls if call.approval is not None]
    result = view.result
    if result is not None:
        result = replace(result, parts=_drop_reserved(result.parts))
    return replace(view, parts=_make_parts(waiting, public_url), result=result)


async def add_requests_to_session(view: SessionView, requests: RequestReader, public_url: str) -> SessionView:
    """Raises `StoreUnavailable`."""
    turns: list[SessionTurnView] = []
    for turn in view.turns:
        parts = _drop_reserved(turn.parts)
        if turn.state in _GOES_ON or turn.left_open:
            key = TurnKey(view.tenant, view.session, turn.turn)
            parts += _make_parts(await _load_waiting(key, requests), public_url)
        turns.append(replace(turn, parts=parts))
    return replace(view, turns=tuple(turns))


async def _load_waiting(key: TurnKey, requests: RequestReader) -> list[ApprovalRequest]:
    loaded: list[ApprovalRequest] = []
    listed = await requests.list_of_turn(key)
    for name in dict.fromkeys(each.id for each in listed if each.state == "pending"):
        try:
            loaded.append((await requests.load(name)).request)
        except NotFound:
            # Not proven, so it is not shown.
            continue
    return loaded


def _make_parts(requests: Iterable[ApprovalRequest], public_url: str) -> tuple[ResponsePart, ...]:
    return tuple(part_from_request(each, _make_links(each, public_url)) for each in requests if each.state == "pending")


def _make_links(request: ApprovalRequest, public_url: str) -> AnswerLinks:
    return AnswerLinks(
        api=f"/v1/approvals/{request.id}/decide",
        session=f"/v1/sessions/{request.tenant}.{request.session}/messages",
        page=f"{public_url}/approvals/{request.id}",
        channels=request.notify,
    )


def _drop_reserved(parts: tuple[ResponsePart, ...]) -> tuple[ResponsePart, ...]:
    return tuple(each for each in parts if each.type not in RESERVED_PART_TYPES)
