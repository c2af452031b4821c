"""Takes decisions from the API, and records attempts that fail before they reach their turn."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from signoff.approvals.audit_events import rejected_entry
from signoff.contracts.decision import Assigning, Assurance
from signoff.contracts.errors import NotFound, Refused, SignoffError
from signoff.contracts.ids import SessionKey, parse_approval_id
from signoff.contracts.names import DEFAULT_DECIDER, DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import AssignmentBody, DecisionAuthor, DecisionDraft
from signoff.formats.replace import replace
from signoff.gateway.approvals.decision_parser import read_batched, read_response, refused_receipt, with_key
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.auth.caller import AuthenticatedCaller, acting_person, own_tenant, person_of
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.transport.middleware import unexpected_receipt

_AT_ONCE: Final = 8
"""Largest number of decisions of a batch at a time."""


@dataclass(frozen=True)
class ApiAttempt:
    """One decision as sent, for the audit log of failed attempts.

    `person` is the claimed person, `key` the `Idempotency-Key`, `channel` the kind of client.
    """

    caller: AuthenticatedCaller | None
    person: str | None
    key: str | None
    sent: str
    channel: str


async def decide_item(deps: GatewayDeps, item: Any, attempt: ApiAttempt) -> Receipt:
    """Never raises: earlier decisions of the batch have counted, and their receipts must be returned."""
    return await _receipt_of(item, lambda name: _decide_batched(deps, item, name, attempt))


async def decide_items(
    deps: GatewayDeps, items: Sequence[Any], attempt_of: Callable[[Any], ApiAttempt]
) -> tuple[Receipt, ...]:
    """Return the receipts in the order of the items. Items about one request are taken in order.

    Each may wait for its turn, so that one after the other would take longer than a client waits.
    """
    names = [_name_of(item) for item in items]
    # A code and an id may name one request.
    places = asyncio.Semaphore(_AT_ONCE if all(map(parse_approval_id, names)) else 1)
    last = dict[str, asyncio.Task[Receipt]]()

    async def take(item: Any, before: asyncio.Task[Receipt] | None) -> Receipt:
        if before is not None:
            await before
        async with places:
            return await decide_item(deps, item, attempt_of(item))

    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[Receipt]] = []
        for name, item in zip(names, items, strict=True):
            last[name] = group.create_task(take(item, last.get(name)))
            tasks.append(last[name])
    return tuple(task.result() for task in tasks)


async def decide_part(deps: GatewayDeps, part: Any, attempt: ApiAttempt, sessions: Collection[SessionKey]) -> Receipt:
    """The part belongs to a message to one of `sessions`. Never raises."""
    return await _receipt_of(part, lambda name: _decide_response(deps, part, name, attempt, sessions))


async def _decide_batched(deps: GatewayDeps, item: Any, name: str, attempt: ApiAttempt) -> Receipt:
    return await decide_draft(deps, read_batched(item, name), attempt, by_card=True)


async def _decide_response(
    deps: GatewayDeps, part: Any, name: str, attempt: ApiAttempt, sessions: Collection[SessionKey]
) -> Receipt:
    draft = read_response(part, name)
    if isinstance(draft, DecisionDraft):
        try:
            key = parse_approval_id(await find_request(deps, draft.approval_id, attempt.caller))
        except NotFound:
            key = None
        if key is None or SessionKey(key.turn.tenant, key.turn.session) not in sessions:
            # The same message for requests elsewhere and for unknown ones.
            draft = refused_receipt("unknown", name, "there is no such request in this session")
    return await decide_draft(deps, draft, attempt)


async def _receipt_of(item: Any, decide_named: Callable[[str], Awaitable[Receipt]]) -> Receipt:
    name = _name_of(item)
    try:
        # JSON may hold half a surrogate pair (`"\\ud800"`), which neither audit log nor receipt can hold.
        json.dumps(item, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return refused_receipt("malformed", "", "it holds invalid Unicode")
    try:
        return await decide_named(name)
    except SignoffError as error:
        return refused_receipt("unavailable", name, error.message)
    except Exception as error:
        return unexpected_receipt(name, error)


def _name_of(item: Any) -> str:
    return str(item.get("approval_id", ""))[:200] if isinstance(item, dict) else ""


async def decide_draft(
    deps: GatewayDeps, draft: DecisionDraft | Receipt, attempt: ApiAttempt, *, by_card: bool = False
) -> Receipt:
    """Records a decision that fails before its request is found."""
    if isinstance(draft, DecisionDraft):
        draft = with_key(draft, attempt.key)
    if isinstance(draft, Receipt):
        return await note_attempt(deps, draft, attempt)
    named = await find_named(deps, draft.approval_id, attempt)
    if isinstance(named, Receipt):
        return await note_attempt(deps, named, attempt)
    approval_id, person = named
    author = author_of_attempt(person, attempt, by_card=by_card)
    return await DecisionService(deps).decide(replace(draft, approval_id=approval_id), author)


def author_of_attempt(person: Person, attempt: ApiAttempt, *, by_card: bool = False) -> DecisionAuthor:
    # In the development profile, a named person counts as signed in.
    assurance: Assurance = "session" if attempt.caller is None else attempt.caller.assurance
    return DecisionAuthor(person, attempt.channel, assurance, by_card=by_card)


async def assign(
    deps: GatewayDeps, approval: str, verdict: Assigning, body: AssignmentBody, attempt: ApiAttempt
) -> Receipt:
    """Hand a request on, or add an approver. Records an attempt that names no request."""
    named = await find_named(deps, approval, attempt)
    if isinstance(named, Receipt):
        return await note_attempt(deps, named, attempt)
    approval_id, person = named
    return await DecisionService(deps).assign(approval_id, verdict, body, author_of_attempt(person, attempt))


async def note_attempt(deps: GatewayDeps, receipt: Receipt, attempt: ApiAttempt) -> Receipt:
    """Record an attempt that never reached its turn."""
    seen = rejected_entry(
        receipt,
        deps.clock(),
        subject="" if attempt.caller is None else attempt.caller.person.id,
        channel=attempt.channel,
        body=attempt.sent,
        tenant=own_tenant(attempt.caller, None),
    )
    await deps.attempts.note(deps.store, seen, receipt.code)
    return receipt


async def find_named(deps: GatewayDeps, approval: str, attempt: ApiAttempt) -> tuple[str, Person] | Receipt:
    try:
        approval_id = await find_request(deps, approval, attempt.caller)
    except NotFound as error:
        return refused_receipt("unknown", approval, error.message)
    key = parse_approval_id(approval_id)
    tenant = DEFAULT_TENANT if key is None else key.turn.tenant
    try:
        return approval_id, acting_person(deps, attempt.caller, attempt.person, default=DEFAULT_DECIDER, tenant=tenant)
    except Refused as error:
        return refused_receipt("not_allowed", approval_id, error.message)


async def find_request(deps: GatewayDeps, approval: str, caller: AuthenticatedCaller | None) -> str:
    """`approval` is an id or a code in the caller's tenant. Raises `NotFound`."""
    approval_id = await Conversations(deps).approval_id(approval, person_of(caller), own_tenant(caller, None))
    key = parse_approval_id(approval_id)
    own_tenant(caller, key.turn.tenant if key is not None else None)
    return approval_id
