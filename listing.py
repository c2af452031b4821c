"""Lists from visibility and memo alone: what waits, and which turns there are. The workflow stays the truth."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from signoff.contracts import names
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import TurnKey, is_id, parse_session_workflow_id, parse_workflow_id
from signoff.contracts.listing import SessionRow, TurnRow, WaitingCard
from signoff.workflows import shown

_log = logging.getLogger(__name__)
TURNS_SEEN: Final = 5_000
"""How many turns are looked through for those that somebody may read; visibility knows no requesters."""
SESSIONS_SEEN: Final = 1_000
"""Of so many sessions, and so many turns that wait, a list of sessions is made at most."""


async def count_waiting(client: Client, *, tenant: str, approvers: Sequence[str] | None = None) -> int:
    """How many turns wait for one of `approvers`. Raises `ServerUnavailable`."""
    return await _count(client, _suspended(tenant, approvers))


async def turns(
    client: Client,
    *,
    tenant: str,
    state: str = "",
    actor: str = "",
    since: datetime | None = None,
    wanted: Callable[[TurnRow], bool] = lambda row: True,
    limit: int = 50,
) -> list[TurnRow]:
    """Turns of a tenant, newest first; only those `wanted`, of the newest `TURNS_SEEN`.

    Raises `NotFound` for no such state, actor or time, `ServerUnavailable`.
    """
    query = _turns(tenant)
    query += f' AND {names.SA_STATE} = "{_word(state)}"' if state else ""
    query += f' AND {names.SA_ACTOR} = "{_word(actor)}"' if actor else ""
    query += f' AND StartTime >= "{_time(since)}"' if since else ""
    found: list[TurnRow] = []
    # A generator that is left half read is closed only when it is collected; its pages would stay until then.
    async with aclosing(_executions(client, query, TURNS_SEEN)) as rows:
        async for row in rows:
            each = await _turn_row(row)
            if each is not None and wanted(each):
                found.append(each)
            if len(found) == limit:
                break
    return sorted(found, key=_started, reverse=True)


async def turn_row(client: Client, key: TurnKey) -> TurnRow | None:
    """The row of one turn, which needs no worker; None for no such turn. Raises `ServerUnavailable`."""
    try:
        return await _turn_row(await client.get_workflow_handle(key.workflow_id).describe())
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise _failed(error) from None


async def sessions(
    client: Client, *, tenant: str, wanted: Callable[[SessionRow], bool] = lambda row: True, limit: int = 50
) -> list[SessionRow]:
    """Sessions of a tenant that go on, newest first; only those `wanted`, of the newest `SESSIONS_SEEN`.

    Raises `ServerUnavailable`.
    """
    query = f'WorkflowType = "{names.SESSION}" AND {names.SA_TENANT} = "{_word(tenant)}"'
    waits: dict[str, list[WaitingCard]] = {}
    async for row in _executions(client, _suspended(tenant, None), SESSIONS_SEEN):
        for card in await _cards(row):
            waits.setdefault(card.session, []).append(card)
    found: list[SessionRow] = []
    async with aclosing(_executions(client, f'{query} AND ExecutionStatus = "Running"', SESSIONS_SEEN)) as rows:
        async for row in rows:
            each = await _session_row(row, waits)
            if each is not None and wanted(each):
                found.append(each)
            if len(found) == limit:
                break
    return sorted(found, key=_started, reverse=True)


async def _count(client: Client, query: str) -> int:
    try:
        return (await client.count_workflows(query)).count
    except RPCError as error:
        raise _failed(error) from None


def _turns(tenant: str) -> str:
    return f'WorkflowType = "{names.ACTOR_TURN}" AND {names.SA_TENANT} = "{_word(tenant)}"'


def _suspended(tenant: str, approvers: Sequence[str] | None) -> str:
    query = f'{_turns(tenant)} AND {names.SA_STATE} = "suspended" AND ExecutionStatus = "Running"'
    if approvers is None:
        return query
    # For the list alone, which is a moment behind: who may decide is judged in the turn, when they do.
    known = ", ".join(f'"{_approver(a)}"' for a in approvers)
    return f"{query} AND {names.SA_APPROVERS} IN ({known})"


def _word(text: str) -> str:
    # A list query takes no parameters: what comes from outside must have nothing in it that ends the quotes.
    if not is_id(text):
        raise NotFound(f"`{text}` is no valid name")
    return text


def _time(moment: datetime) -> str:
    try:
        return moment.astimezone(UTC).isoformat()
    except (OverflowError, ValueError):
        # The first and the last day there are have no time in every zone.
        raise NotFound(f"`{moment.isoformat()}` is no time of a turn") from None


def _approver(text: str) -> str:
    kind, _, name = text.partition(":")
    return f"{_word(kind)}:{_word(name)}"


async def _executions(client: Client, query: str, limit: int) -> AsyncGenerator[WorkflowExecution, None]:
    try:
        async for row in client.list_workflows(query, limit=limit, page_size=min(limit, 200)):
            yield row
    except RPCError as error:
        raise _failed(error) from None


def _failed(error: RPCError) -> ServerUnavailable:
    first = error.message.splitlines()[0] if error.message else error.status.name
    return ServerUnavailable(f"the Temporal server could not list turns: {first}")


async def _cards(row: WorkflowExecution) -> list[WaitingCard]:
    key = parse_workflow_id(row.id)
    if key is None:
        return []
    memo = await _memo(row)
    # The memo is not written anew when a card is decided, which would be one event more; the codes are.
    codes = set(row.typed_search_attributes.get(shown.CODES) or ())
    cards = _cards_in(memo, row.id)
    named = {"tenant": key.tenant, "session": key.session, "turn": key.turn}
    return [card.model_copy(update=named) for card in cards if card.code in codes]


async def _turn_row(row: WorkflowExecution) -> TurnRow | None:
    key = parse_workflow_id(row.id)
    if key is None:
        return None
    memo = await _memo(row)
    shown_as = row.typed_search_attributes
    return TurnRow(
        tenant=key.tenant,
        session=key.session,
        turn=key.turn,
        workflow_id=row.id,
        run_id=row.run_id,
        state=str(shown_as.get(shown.STATE) or ""),
        actor=str(shown_as.get(shown.ACTOR) or ""),
        title=_text(memo, names.MEMO_TITLE),
        requester=_text(memo, names.MEMO_REQUESTER),
        approvers=tuple(dict.fromkeys(each for card in _cards_in(memo, row.id) for each in card.approvers)),
        codes=tuple(code for code in shown_as.get(shown.CODES) or () if not code.endswith("!")),
        due_at=shown_as.get(shown.DUE_AT),
        started_at=row.start_time,
        closed_at=row.close_time,
    )


async def _session_row(row: WorkflowExecution, waits: Mapping[str, Sequence[WaitingCard]]) -> SessionRow | None:
    key = parse_session_workflow_id(row.id)
    if key is None:
        return None
    memo = await _memo(row)
    cards = waits.get(key.session, ())
    return SessionRow(
        tenant=key.tenant,
        session=key.session,
        title=_text(memo, names.MEMO_TITLE),
        requester=_text(memo, names.MEMO_REQUESTER),
        approvers=tuple(dict.fromkeys(entry for card in cards for entry in card.approvers)),
        codes=tuple(card.code for card in cards),
        started_at=row.start_time,
    )


async def _memo(row: WorkflowExecution) -> Mapping[str, Any]:
    """The memo of a row; nothing of one that cannot be read. Whoever starts a workflow writes what they like into it,
    and one such row must not take everybody's list away."""
    try:
        return await row.memo()
    except Exception as error:
        _log.warning("the memo of %r cannot be read (%s)", row.id, type(error).__name__)
        return {}


def _cards_in(memo: Mapping[str, Any], workflow: str) -> list[WaitingCard]:
    given = memo.get(names.MEMO_CARDS)
    try:
        return [WaitingCard.model_validate(card) for card in given or ()]
    except (ValidationError, TypeError):
        _log.warning("the cards in the memo of %r cannot be read", workflow)
        return []


def _text(memo: Mapping[str, Any], name: str) -> str:
    found = memo.get(name)
    return found if isinstance(found, str) else ""


def _started(row: TurnRow | SessionRow) -> datetime:
    return row.started_at or datetime.min.replace(tzinfo=UTC)
