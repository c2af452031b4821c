"""The context of a call, as its handler is given it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.contracts.person import Principal
from signoff.registry.capabilities import NOTHING_GRANTED, GrantedCapabilities
from signoff.registry.tool_result import HandOff


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The second argument of every handler and probe: the call it serves (B76)."""

    actor_name: str
    """The actor that calls."""
    session_id: str
    """The session of the turn."""
    turn_id: str
    """The turn."""
    call_id: str
    """The call within its turn, such as `c1.2`."""
    tenant_id: str
    """The tenant of the turn."""
    user_id: str
    """The id of who asked for the turn."""
    user: Principal
    """Who asked for the turn, as the gateway knew them when the call was proposed.

    For a subscription, `tier`, `roles` and `person_id` raise `LookupError`.
    """
    idempotency_key: str
    """The same for every attempt of one call, also after a crash, a reset or a redeploy."""
    person_id: str = ""
    """The human behind `user_id`, the same whatever entry or login they asked by."""
    approval_decision: Literal["approved"] | None = None
    """`approved` where people were asked; a denied call never reaches a handler (N21)."""
    approval_reason: str = ""
    """The reason that the last who decided gave."""
    decided_by: str = ""
    """The ids of everybody who decided, joined by `, `."""
    attempt: int = 1
    """Which attempt this is, from 1."""
    result_budget_chars: int = RESULT_CHARS_PER_BATCH
    """How many characters of the result the model will read (E18)."""
    route: str = ""
    """The actor's route; empty where it has none."""
    step: str = ""
    """The route's step; empty where it has none."""
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The context fields that the manifest declares, the attributes of `user` under `user`; read-only (F02)."""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What the session has collected; read-only (F02)."""
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The tool's `settings`, as the manifest or its code has them; read-only."""
    capabilities: GrantedCapabilities = NOTHING_GRANTED
    """What the tool declares that it needs, and nothing else (E19)."""

    @property
    def event_id(self) -> str:
        """The id of this call everywhere, `<tenant>.<session>.<turn>.<call>`; the same for every attempt."""
        return ApprovalKey(TurnKey(self.tenant_id, self.session_id, self.turn_id), self.call_id).id

    def hand_off(self) -> HandOff:
        """Makes the answer of a handler that gave the work away; its result is brought later under `event_id`."""
        return HandOff(self.event_id)
