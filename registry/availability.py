"""What a tool's own functions are told before a call of it: whether it is there at all, and whether it is permitted.

They may look at the world, so nothing pure asks them: an activity does, and hands the gates what they said.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from signoff.contracts.call import Pinned
from signoff.contracts.person import Principal


@dataclass(frozen=True, kw_only=True)
class Occasion:
    """Who asks, where and by whom, as it stood when the call was proposed. A tool bound to people reads it from here.

    `user` is who asked for the turn; `channel`, `route` and `step` are empty where there are none.
    """

    tenant: str
    user: Principal
    actor: str
    session: str
    turn: str
    channel: str = ""
    route: str = ""
    step: str = ""


Available: TypeAlias = Callable[[Occasion], Awaitable[bool]]
"""`async (occasion)`: only `True` itself makes the tool available (E04). It is asked often, and must be quick."""


def occasion_of(ctx: Pinned) -> Occasion:
    """The occasion that a pinned context describes."""
    return Occasion(
        tenant=ctx.tenant,
        user=ctx.user,
        actor=ctx.actor,
        session=ctx.session,
        turn=ctx.turn,
        channel=ctx.channel,
        route=ctx.route,
        step=ctx.step,
    )
