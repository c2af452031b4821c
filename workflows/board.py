"""The turn as Temporal's own tools show it, kept up to date; costs an event only where its state changed."""

from temporalio import workflow

from signoff.approvals.desk import Desk
from signoff.contracts.turn import LiveState
from signoff.workflows import shown
from signoff.workflows.record import TurnRecord


class Board:
    """The state in the search attributes and the current details of one turn."""

    def __init__(self, record: TurnRecord, desk: Desk) -> None:
        self._record = record
        self._desk = desk
        # What a turn is started with stands there already: a turn that asks nobody pays for no update before its end.
        self._published: LiveState = "running"

    def publish(self) -> None:
        """Show the present state."""
        record = self._record
        if record.result is None:
            record.state = "suspended" if self._desk.pending() else "running"
        if record.state != self._published:
            workflow.upsert_search_attributes([shown.STATE.value_set(record.state)])
            self._published = record.state
        settled = [view.outcome for view in record.calls.values() if view.outcome is not None]
        # Costs no event, so it is set whether or not it changed.
        workflow.set_current_details(shown.details(self._desk.all(), settled))
