"""Distributes a record: each destination gets its own view, all at once; only the model's can fail the call (B34,
N20).
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final, NamedTuple

from temporalio import activity

from signoff.activities.hooks.hook_caller import await_within, call_function
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.redaction import HIDDEN
from signoff.contracts.call import Permit
from signoff.registry.results.destinations import AUDIT, LLM_SESSION, Delivery, DeliveryFailure, Destination
from signoff.registry.tool import Tool
from signoff.registry.tool_result import AnnotatedRecord, Filter, RecordField, copy_record, select_slots

SECONDS: Final = 5.0
"""How long one destination has to make its view and to take it; they are all waited for at the same time."""
GATE: Final = "distribute"
"""The gate of a call that ran and of whose record no view for the model could be made."""
_OBSERVER_SECONDS: Final = 1.0


class RecordViews(NamedTuple):
    """The views of a distributed record that stay here, as plain data."""

    model: dict[str, Any] | None
    """The model's view; None where its filter failed."""
    audit: dict[str, Any]
    """The view that is recorded."""


class RecordDistributor:
    """Distributes the records of one tool."""

    def __init__(self, deps: WorkerDeps, tool: Tool) -> None:
        self._distribution = deps.catalog.distribution
        self._tool = tool

    async def views(self, permit: Permit, record: AnnotatedRecord) -> RecordViews:
        """Makes the model's view and the one that is recorded, without giving the record to anybody else."""
        model, audit = await asyncio.gather(self._ours(LLM_SESSION, permit, record), self._ours(AUDIT, permit, record))
        return RecordViews(model, _names(record) if audit is None else audit)

    async def distribute(self, permit: Permit, record: AnnotatedRecord, key: str) -> RecordViews:
        """Makes the same views, and gives every sink its own, within its time.

        A worker that is lost before this returns has not recorded the call: whoever runs it again delivers again.
        """
        sinks = [self._deliver_guarded(each, permit, record, key) for each in self._distribution.sinks(self._tool)]
        views: RecordViews
        views, _ = await asyncio.gather(self.views(permit, record), asyncio.gather(*sinks))
        return views

    async def _ours(self, name: str, permit: Permit, record: AnnotatedRecord) -> dict[str, Any] | None:
        view = self._distribution.view(self._tool, name)
        if view is None:
            return None
        found = await self._guard(name, permit, _apply_filter(view, record))
        return None if found is None else found.values

    async def _deliver_guarded(self, to: Destination, permit: Permit, record: AnnotatedRecord, key: str) -> None:
        await self._guard(to.name, permit, self._deliver(to, permit, record, key))

    async def _deliver(self, to: Destination, permit: Permit, record: AnnotatedRecord, key: str) -> None:
        view, ctx = self._distribution.view(self._tool, to.name), permit.ctx
        if view is None or to.sink is None:
            return
        await to.sink(
            Delivery(
                destination=to.name,
                record=select_slots(await _apply_filter(view, record), to.reads),
                tool=self._tool.name,
                call_id=permit.call,
                actor_name=ctx.actor,
                tenant_id=ctx.tenant,
                session_id=ctx.session,
                turn_id=ctx.turn,
                idempotency_key=key,
            )
        )

    async def _guard(self, name: str, permit: Permit, work: Awaitable[Any]) -> Any:
        """Awaits `work` within its time; logs and returns None when it fails."""
        try:
            return await await_within(work, SECONDS)
        except Exception as error:
            # By its class alone: its words may hold what the destination was not to get, or the log.
            why = f"no answer within {SECONDS:g} s" if isinstance(error, TimeoutError) else type(error).__name__
            await self._tell(name, permit, why)
            return None

    async def _tell(self, name: str, permit: Permit, why: str) -> None:
        observer = self._distribution.observer
        activity.logger.warning("the record of %s did not reach %s: %s", self._tool.name, name, why)
        if observer is None:
            return
        failure = DeliveryFailure(name, self._tool.name, permit.call, permit.ctx.tenant, permit.ctx.turn, why)
        try:
            await await_within(call_function(observer, failure), _OBSERVER_SECONDS)
        except Exception as error:
            activity.logger.warning("the observer of deliveries failed: %s", type(error).__name__)


async def _apply_filter(view: Filter, record: AnnotatedRecord) -> AnnotatedRecord:
    """Applies a filter to a copy of the record, so that nobody can change what others get. Raises what goes wrong."""
    found: object = await call_function(view, copy_record(record))
    if not isinstance(found, AnnotatedRecord):
        raise TypeError("a filter gives a record")
    # A filter may keep what it returned, and change it later.
    return copy_record(found)


def _names(record: AnnotatedRecord) -> dict[str, Any]:
    """Returns all that is recorded where the filter for it failed: the names of the fields."""
    fields: object = record.fields
    names = [name for name in fields if isinstance(name, str)] if isinstance(fields, Mapping) else []
    return AnnotatedRecord({name: RecordField(HIDDEN) for name in names}).values
