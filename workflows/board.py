"""The turn as Temporal's own tools show it, kept up to date; costs an event only where something changed."""

from collections.abc import Sequence

from temporalio import workflow

from signoff.approvals.desk import Desk
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.workflows import shown
from signoff.workflows.record import TurnRecord


class Board:
    """Search attributes, the memo of open cards and the current details of one turn."""

    def __init__(self, record: TurnRecord, desk: Desk) -> None:
        self._record = record
        self._desk = desk
        self._published: shown.Attributes | None = None
        self._listed: dict[str, shown.Version] = {}

    def publish(self) -> None:
        """Show the present state."""
        record, requests = self._record, self._desk.all()
        if record.result is None:
            record.state = "suspended" if self._desk.pending() else "running"
        # What a turn is started with stands there already: a turn that asks nobody pays for no update before its end.
        before = self._published or shown.attributes("running", ())
        after = shown.attributes(record.state, requests)
        changed = shown.updates(before, after)
        if changed:
            workflow.upsert_search_attributes(changed)
        # Not for a card that is decided: that is in the codes, and saves an event.
        if _asked(before, after) or self._outdated(requests):
            cards = shown.memo(requests)
            listed = {card["id"] for card in cards}
            self._listed = {request.id: shown.version(request) for request in requests if request.id in listed}
            workflow.upsert_memo({names.MEMO_CARDS: cards})
        self._published = after
        settled = [view.outcome for view in record.calls.values() if view.outcome is not None]
        # Costs no event, so it is set whether or not it changed.
        workflow.set_current_details(shown.details(requests, settled))

    def _outdated(self, requests: Sequence[ApprovalRequest]) -> bool:
        """Whether a card that waits is not listed and now has room, or is listed as it no longer is."""
        if shown.unlisted(requests, self._listed):
            return True
        return any(
            request.state == "pending"
            and self._listed.get(request.id, shown.version(request)) != shown.version(request)
            for request in requests
        )


def _asked(before: shown.Attributes, after: shown.Attributes) -> bool:
    return len(after[1]) > len(before[1]) or any(code not in before[1] for code in after[1] if not code.endswith("!"))
