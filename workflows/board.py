"""The turn as Temporal's own tools show it, kept up to date; costs an event only where its state changed."""

from temporalio import workflow

from signoff.approvals.approval_book import ApprovalBook
from signoff.workflows import temporal_metadata
from signoff.workflows.turn_state import TurnRecord


class Board:
    """The state in the search attributes and the current details of one turn."""

    def __init__(self, record: TurnRecord, desk: ApprovalBook) -> None:
        self._record = record
        self._desk = desk
        self._published: str | None = None

    def publish(self) -> None:
        """Show the present state."""
        record = self._record
        if record.result is None:
            record.state = "suspended" if self._desk.pending() else "running"
        shown = temporal_metadata.shown_state(record.state)
        if shown != self._published:
            change = temporal_metadata.STATE
            workflow.upsert_search_attributes([change.value_unset() if shown is None else change.value_set(shown)])
            self._published = shown
        settled = [view.outcome for view in record.calls.values() if view.outcome is not None]
        # Costs no event, so it is set whether or not it changed.
        workflow.set_current_details(temporal_metadata.details(self._desk.all(), settled))
