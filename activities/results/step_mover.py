"""Moves conversations from step to step of a route."""

from signoff.activities.call_journal import attribute, write
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.audit_events import move_entry
from signoff.contracts.call import CallContext, Place
from signoff.contracts.ids import SessionKey
from signoff.formats.replace import replace
from signoff.store.content_store import seal_place


class StepMover:
    """Computes where a conversation moves, and seals the place. It takes no place from a workflow."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps

    async def advance(self, ctx: CallContext, completion: int) -> Place | None:
        """Return the place to which the turn of `ctx` moves before this completion; `None` if it stays.

        Only the turn of a requester for whom the gateway vouches moves. Raises `StoreUnavailable`.
        """
        scopes = self._deps.catalog.scopes.get(ctx.actor)
        # The requester named this step: the model answers there once, even if all data is there already.
        named = completion == 1 and ctx.step and (ctx.route, ctx.step) == (ctx.user.route, ctx.user.step)
        if scopes is None or named:
            return None
        step = scopes.advance(ctx.route, ctx.step, scopes.available_fields(ctx.extra))
        if step == ctx.step or await self._deps.requester_problem(ctx):
            return None
        return await self.seal(ctx, step)

    async def record(self, ctx: CallContext, place: Place | None, completion: int) -> None:
        """Record the move of `advance`, once. Raises `StoreUnavailable`."""
        if place is not None:
            entry = move_entry(ctx, place.step, completion, self._deps.clock())
            await write(self._deps, await attribute(self._deps, ctx, [entry]))

    async def seal(self, ctx: CallContext, step: str) -> Place:
        """Return the sealed place of this step of the route of `ctx`. Raises `StoreUnavailable`."""
        place = Place(actor=ctx.actor, route=ctx.route, step=step)
        return await seal_place(self._deps.store, SessionKey(ctx.tenant, ctx.session), place)


def ctx_at(ctx: CallContext, place: Place | None) -> CallContext:
    """Return `ctx` at `place`; as it is if there is none."""
    return ctx if place is None else replace(ctx, route=place.route, step=place.step, seal=place.seal)
