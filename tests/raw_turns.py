"""Sends answers to turns: raw ones past the gateway, and hints to stored ones as the gateway does."""

import uuid
from typing import Any

from some import some
from temporalio.service import RPCError

from signoff.approvals.approval_book import malformed_receipt
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import parse_approval_id
from signoff.contracts.receipt import Receipt
from signoff.engine.turn_client import TurnClient
from signoff.engine.workflow_runs import execute_update
from signoff.formats.replace import replace
from signoff.store.questions.answers import OwedAnswer
from signoff.store.questions.questions import Questions
from signoff.store.store import Store


class RawTurnClient(TurnClient):
    """A client whose answers are raw: no gateway has stored them. `request` needs a `store`."""

    store: Store | None = None

    async def request(self, approval_id: str) -> ApprovalRequest:
        """Read a request from the store: the turn keeps little of it. Raises `NotFound`."""
        rows = await Questions(some(self.store)).read(approval_id)
        if rows is None:
            raise NotFound(f"there is no request `{approval_id}`")
        return rows.request(rows.latest)

    async def decide(self, decision: Decision) -> Receipt:
        """Equal delivery ids are one answer."""
        key = parse_approval_id(decision.approval_id)
        if key is None:
            return malformed_receipt("`approval_id`: no such id", decision.approval_id)
        decision = decision if decision.delivery_id else replace(decision, delivery_id=uuid.uuid4().hex)
        name = f"{decision.delivery_id}:{key.call}:{decision.revision or 1}"
        receipt = await self.deliver(key, name, _body_of(decision))
        return replace(receipt, verdict=decision.verdict) if receipt.status == "pending" else receipt

    async def withdraw(self, wish: Decision) -> Receipt:
        key = some(parse_approval_id(wish.approval_id))
        handle = self.handle(key.turn)
        try:
            return await execute_update(handle, names.CANCEL, _body_of(wish), result_type=Receipt)
        except RPCError as error:
            return await self._after_the_end(handle, key.id, error)


def _body_of(decision: Decision) -> dict[str, Any]:
    return decision.model_dump(mode="json", exclude_defaults=True)


async def wake(turns: TurnClient, store: Store, decision: Decision) -> Receipt:
    """Wake a turn to read a stored answer, as the gateway does. Raises LookupError if it is not stored."""
    rows = await Questions(store).read(decision.approval_id)
    named = (decision.revision or 1, decision.delivery_id)
    for each in () if rows is None else rows.answers:
        if (each.revision, each.vote.decision.delivery_id) == named:
            return await turns.wake(OwedAnswer(decision.approval_id, each.number, each.vote))
    raise LookupError(f"{decision.approval_id} has no such answer")
