"""Lists turns and sessions: existence and state from visibility, pending requests from the store.

Anyone who can write a memo or a search attribute could forge approvers there, so neither is trusted for that.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import TurnKey, is_id, parse_session_workflow_id, parse_workflow_id
from signoff.contracts.responses import SessionRow, TurnRow
from signoff.formats.replace import replace
from signoff.store.questions.request_lists import RequestLists
from signoff.workflows import temporal_metadata

_GOES_ON: Final = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)
_log = logging.getLogger(__name__)
TURNS_SEEN: Final = 5_000
"""Maximum number of turns searched for a person's readable ones: visibility knows no requesters."""
SESSIONS_SEEN: Final = 1_000
"""Maximum number of sessions for a list."""
_PAGE: Final = 200
"""Turns in one query."""
_IDS: Final = 100
"""Workflow ids in one query."""
_KEYS: Final = 1_000
"""Turns in one page of keys."""


class SuspendedPage(NamedTuple):
    """A page of turns by their keys."""

    keys: list[TurnKey]
    end: bytes
    """The place of the next page. Empty for the last page."""


async def turns(
    client: Client,
    requests: RequestLists,
    *,
    tenant: str,
    state: str = "",
    actor: str = "",
    since: datetime | None = None,
    readers: Sequence[str] | None = None,
    wanted: Callable[[TurnRow], bool] = lambda row: True,
    limit: int = 50,
) -> list[TurnRow]:
    """List a tenant's turns, newest first: only those `wanted`, among the newest `TURNS_SEEN`.

    `readers` are the reader's approver entries, or `None` for a person who may read all. Raises `NotFound` for an
    unknown state, actor or time, `ServerUnavailable`, `StoreUnavailable`.
    """
    query = _turns(tenant)
    query += f" AND {_in_state(_word(state))}" if state else ""
    query += f' AND {names.SA_ACTOR} = "{_word(actor)}"' if actor else ""
    query += f' AND StartTime >= "{_time(since)}"' if since else ""
    found: list[TurnRow] = []
    # Close the generator explicitly: otherwise its pages stay in memory until garbage collection.
    async with aclosing(_pages(_executions(client, query, TURNS_SEEN), min(limit, _PAGE))) as pages:
        async for page in pages:
            found += filter(wanted, await _build_rows(requests, page, readers))
            if len(found) >= limit:
                break
    return sorted(found[:limit], key=_started_at, reverse=True)


async def turn_row(client: Client, requests: RequestLists, key: TurnKey) -> TurnRow | None:
    """Return `None` if the turn does not exist. Needs no worker. Raises `ServerUnavailable`, `StoreUnavailable`."""
    try:
        row = await client.get_workflow_handle(key.workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise _explain_failure(error) from None
    return next(iter(await _build_rows(requests, [row])), None)


async def suspended_turns(client: Client, keys: Collection[TurnKey]) -> set[TurnKey]:
    """Return the turns that run and wait, as far as visibility knows. Raises `ServerUnavailable`."""
    # A list query has no parameters: an id must not contain anything that ends the quotes.
    ids = sorted({key.workflow_id for key in keys if all(map(is_id, key))})
    found: set[TurnKey] = set()
    for begin in range(0, len(ids), _IDS):
        named = ", ".join(f'"{each}"' for each in ids[begin : begin + _IDS])
        found.update((await _keys_of(client, f"WorkflowId IN ({named}) AND {_in_state('suspended')}")).keys)
    return found


async def suspended_page(client: Client, place: bytes = b"") -> SuspendedPage:
    """Return a page of all turns that wait, from `place` on. Raises `ServerUnavailable`."""
    return await _keys_of(client, f'WorkflowType = "{names.ACTOR_TURN}" AND {_in_state("suspended")}', place)


async def closed_turns(client: Client, since: datetime) -> AsyncGenerator[TurnRow, None]:
    """Yield turns of all tenants in any order, including each run of a reset turn.

    Omits the memo's title and requester: a frequent caller decrypts none. Raises `ServerUnavailable`.
    """
    query = f'WorkflowType = "{names.ACTOR_TURN}" AND CloseTime >= "{_time(since)}"'
    try:
        async for row in client.list_workflows(query):
            found = None if row.status in _GOES_ON else _row_without_memo(row)
            if found is not None and found.closed_at is not None:
                yield found
    except RPCError as error:
        raise _explain_failure(error) from None


async def lost_questions(client: Client, requests: RequestLists) -> AsyncGenerator[TurnRow, None]:
    """Yield the waiting turns of all tenants without any question in the store.

    Omits turns with a settled question: its answer is on the way, or the gateway delivers it again. Raises
    `ServerUnavailable`, `StoreUnavailable`.
    """
    query = f'WorkflowType = "{names.ACTOR_TURN}" AND {_in_state("suspended")} AND ExecutionStatus = "Running"'
    # Return all of them: after a restore, no other source lists the turns that cannot be answered.
    async with aclosing(_pages(_executions(client, query, None), _PAGE)) as pages:
        async for page in pages:
            rows = [row for row in map(_row_without_memo, page) if row is not None]
            asked = await requests.of_turns([_key(row) for row in rows])
            for row in rows:
                if _key(row) not in asked:
                    yield row


async def sessions(
    client: Client,
    requests: RequestLists,
    *,
    tenant: str,
    wanted: Callable[[SessionRow], bool] = lambda row: True,
    limit: int = 50,
) -> list[SessionRow]:
    """List a tenant's running sessions, newest first: only those `wanted`, among the newest `SESSIONS_SEEN`.

    Raises `ServerUnavailable`, `StoreUnavailable`.
    """
    query = f'WorkflowType = "{names.SESSION}" AND {names.SA_TENANT} = "{_word(tenant)}"'
    found: list[SessionRow] = []
    async with aclosing(_executions(client, f'{query} AND ExecutionStatus = "Running"', SESSIONS_SEEN)) as rows:
        async for row in rows:
            each = await _session_row(row)
            if each is not None and wanted(each):
                found.append(each)
            if len(found) == limit:
                break
    waits: dict[str, list[ApprovalRequest]] = {}
    for request in await requests.list_waiting_of(tenant, [each.session for each in found]):
        waits.setdefault(request.session, []).append(request)
    return sorted((_count_waiting(each, waits.get(each.session, ())) for each in found), key=_started_at, reverse=True)


def _turns(tenant: str) -> str:
    return f'WorkflowType = "{names.ACTOR_TURN}" AND {names.SA_TENANT} = "{_word(tenant)}"'


def _state(status: WorkflowExecutionStatus | None, shown: str) -> str:
    if status in (None, WorkflowExecutionStatus.RUNNING):
        return shown or "running"
    if status == WorkflowExecutionStatus.COMPLETED:
        return shown or "complete"
    # In any earlier state: no later task could update the attribute.
    return "cancelled" if status == WorkflowExecutionStatus.CANCELED else status.name.lower()


def _in_state(state: str) -> str:
    # `!=` does not match rows without the attribute, so query for `NULL`.
    match state:
        case "running":
            return f'ExecutionStatus = "Running" AND {names.SA_STATE} IS NULL'
        case "complete":
            return f'ExecutionStatus = "Completed" AND {names.SA_STATE} IS NULL'
        case "suspended":
            return f'ExecutionStatus = "Running" AND {names.SA_STATE} = "suspended"'
        case "terminated" | "failed":
            return f'ExecutionStatus = "{state.capitalize()}"'
        case "cancelled":
            return f'({names.SA_STATE} = "cancelled" OR ExecutionStatus = "Canceled")'
    return f'{names.SA_STATE} = "{state}"'


def _word(text: str) -> str:
    # A list query has no parameters: external text must not contain anything that ends the quotes.
    if not is_id(text):
        raise NotFound(f"`{text}` is no valid name")
    return text


def _time(moment: datetime) -> str:
    try:
        return moment.astimezone(UTC).isoformat()
    except (OverflowError, ValueError):
        # The first and the last possible day do not exist in every time zone.
        raise NotFound(f"`{moment.isoformat()}` is no time of a turn") from None


async def _executions(client: Client, query: str, limit: int | None) -> AsyncGenerator[WorkflowExecution, None]:
    size = _PAGE if limit is None else min(limit, _PAGE)
    try:
        async for row in client.list_workflows(query, limit=limit, page_size=size):
            yield row
    except RPCError as error:
        raise _explain_failure(error) from None


async def _keys_of(client: Client, query: str, place: bytes = b"") -> SuspendedPage:
    # Read the ids alone: the SDK decodes every search attribute of each row.
    wanted = ListWorkflowExecutionsRequest(
        namespace=client.namespace, page_size=_KEYS, next_page_token=place, query=query
    )
    try:
        page = await client.workflow_service.list_workflow_executions(wanted)
    except RPCError as error:
        raise _explain_failure(error) from None
    keys = (parse_workflow_id(each.execution.workflow_id) for each in page.executions)
    return SuspendedPage([key for key in keys if key is not None], page.next_page_token)


def _explain_failure(error: RPCError) -> ServerUnavailable:
    first = error.message.splitlines()[0] if error.message else error.status.name
    return ServerUnavailable(f"the Temporal server could not list turns: {first}")


async def _pages(
    rows: AsyncGenerator[WorkflowExecution, None], size: int
) -> AsyncGenerator[list[WorkflowExecution], None]:
    page: list[WorkflowExecution] = []
    async with aclosing(rows):
        async for row in rows:
            page.append(row)
            if len(page) == size:
                yield page
                page = []
    if page:
        yield page


async def _build_rows(
    requests: RequestLists, page: Sequence[WorkflowExecution], readers: Sequence[str] | None = None
) -> list[TurnRow]:
    """Leave out turns that concern none of `readers`."""
    rows = [row for row in [await _turn_row(each) for each in page] if row is not None]
    asked = await requests.of_turns([_key(row) for row in rows], readers=readers)
    # The memo can be forged, and could name a person as requester.
    rows = [row for row in rows if asked.get(_key(row)) != []]
    return [_with(row, asked.get(_key(row), ())) for row in rows]


def _with(row: TurnRow, asked: Sequence[ApprovalRequest]) -> TurnRow:
    if not asked:
        return row
    # After a repeated question, only the latest revision can wait.
    latest = {request.id: request for request in asked}.values()
    waiting = [request for request in latest if request.state == "pending"]
    return replace(
        row,
        requester=asked[-1].requester.user,
        approvers=_approvers(asked),
        codes=tuple(request.code for request in waiting),
        due_at=min((each.expires_at for each in waiting if each.expires_at is not None), default=None),
    )


def _approvers(asked: Sequence[ApprovalRequest]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entry for request in asked for entry in request.approvers))


def _key(row: TurnRow) -> TurnKey:
    return TurnKey(row.tenant, row.session, row.turn)


async def _turn_row(row: WorkflowExecution) -> TurnRow | None:
    found = _row_without_memo(row)
    if found is None:
        return None
    memo = await _memo(row)
    return replace(found, title=_text(memo, names.MEMO_TITLE), requester=_text(memo, names.MEMO_REQUESTER))


def _row_without_memo(row: WorkflowExecution) -> TurnRow | None:
    key = parse_workflow_id(row.id)
    if key is None:
        return None
    shown_as = row.typed_search_attributes
    return TurnRow(
        id=".".join(key),
        tenant=key.tenant,
        session=key.session,
        turn=key.turn,
        workflow_id=row.id,
        run_id=row.run_id,
        state=_state(row.status, str(shown_as.get(temporal_metadata.STATE) or "")),
        actor=str(shown_as.get(temporal_metadata.ACTOR) or ""),
        title="",
        requester="",
        started_at=row.start_time,
        closed_at=row.close_time,
    )


async def _session_row(row: WorkflowExecution) -> SessionRow | None:
    key = parse_session_workflow_id(row.id)
    if key is None:
        return None
    memo = await _memo(row)
    return SessionRow(
        tenant=key.tenant,
        session=key.session,
        title=_text(memo, names.MEMO_TITLE),
        requester=_text(memo, names.MEMO_REQUESTER),
        started_at=row.start_time,
    )


def _count_waiting(row: SessionRow, asked: Sequence[ApprovalRequest]) -> SessionRow:
    codes = tuple(request.code for request in asked)
    return replace(row, approvers=_approvers(asked), codes=codes)


async def _memo(row: WorkflowExecution) -> Mapping[str, Any]:
    """Return {} for an unreadable memo.

    Anyone who starts a workflow controls its memo, and one bad row must not break every list.
    """
    try:
        return await row.memo()
    except Exception as error:
        _log.warning("the memo of %r cannot be read (%s)", row.id, type(error).__name__)
        return {}


def _text(memo: Mapping[str, Any], name: str) -> str:
    found = memo.get(name)
    return found if isinstance(found, str) else ""


def _started_at(row: TurnRow | SessionRow) -> datetime:
    return row.started_at or datetime.min.replace(tzinfo=UTC)
