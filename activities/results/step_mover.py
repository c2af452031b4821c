"""Moves conversations from step to step of a route."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from signoff.activities.call_journal import attribute, write
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.audit_events import move_entry
from signoff.contracts.call import CallContext, Place
from signoff.contracts.ids import SessionKey
from signoff.contracts.updates import DATA, Updates
from signoff.formats.nearest_name import quote_name
from signoff.formats.replace import replace
from signoff.store.content_store import seal_place

_STAYS: Final = "The conversation stays where it is: the step `{}` waits for {}."


class Move(NamedTuple):
    """The move of a conversation that a tool requested."""

    place: Place | None = None
    """The sealed place; `None` if the conversation stays."""
    note: str = ""
    """The reason for staying, for the model."""
    problem: str = ""


class StepMover:
    """Computes and seals a conversation's next place. Accepts no place from a workflow."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps

    async def advance(self, ctx: CallContext, completion: int) -> Place | None:
        """Return the next place of the turn of `ctx` before this completion; `None` if it stays.

        Only a turn with a requester confirmed by the gateway moves. Raises `StoreUnavailable`.
        """
        scopes = self._deps.catalog.scopes.get(ctx.actor)
        # The requester named this step: the model answers there once, even if all its data is available already.
        named = completion == 1 and ctx.step and (ctx.route, ctx.step) == (ctx.user.route, ctx.user.step)
        if scopes is None or named or ctx.route not in scopes.steps:
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

    async def follow(self, ctx: CallContext, step: object, updates: Updates) -> Move:
        """Return the move to the `step` that a tool named, which changed the context by `updates`.

        Raises `StoreUnavailable`.
        """
        scopes = self._deps.catalog.scopes.get(ctx.actor)
        found = scopes.find_step(ctx.route, step) if scopes is not None and isinstance(step, str) else None
        if scopes is None or found is None:
            names = [] if scopes is None else [f"`{each.name}`" for each in scopes.steps.get(ctx.route, ())]
            where = (
                f"route `{ctx.route}` has {', '.join(names)}" if names else "the conversation is on no route with steps"
            )
            return Move(problem=f"it names the next step {quote_name(str(step))}, and {where}")
        have = scopes.available_fields(_changed(ctx.extra, updates))
        lacking = [name for name in found.requires if name not in have]
        if lacking:
            return Move(note=_STAYS.format(found.name, ", ".join(f"`{name}`" for name in lacking)))
        if found.name == ctx.step or await self._deps.requester_problem(ctx):
            return Move()
        return Move(await self.seal(ctx, found.name))

    async def seal(self, ctx: CallContext, step: str) -> Place:
        """Raises `StoreUnavailable`."""
        place = Place(actor=ctx.actor, route=ctx.route, step=step)
        return await seal_place(self._deps.store, SessionKey(ctx.tenant, ctx.session), place)


def ctx_at(ctx: CallContext, place: Place | None) -> CallContext:
    return ctx if place is None else replace(ctx, route=place.route, step=place.step, seal=place.seal)


def _changed(extra: Mapping[str, Any], updates: Updates) -> dict[str, Any]:
    held = extra.get(DATA)
    data = {**(held if isinstance(held, Mapping) else {}), **updates.data}
    return {**extra, **updates.context, DATA: data}
