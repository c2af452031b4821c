"""What a handler is told about the call it serves."""

from dataclasses import dataclass
from typing import Literal

from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.contracts.person import Principal
from signoff.registry.capabilities import NOTHING_GRANTED, Granted
from signoff.registry.results.tool_result import Handed


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The second argument of every handler (B76).

    `user` is who asked for the turn, as the gateway knew them when the call was proposed.
    `person_id` is the human behind `user_id`, the same whatever entry or login they asked by.
    `idempotency_key` is the same for every attempt of one call, also after a crash, a reset or a redeploy.
    `approval_decision` is `approved` or nothing: a denied call never reaches a handler (N21).
    `attempt` counts from 1; `result_budget_chars` is how much of the result the model will read (E18).
    `capabilities` is what the tool declares that it needs, and nothing else (E19).
    """

    actor_name: str
    session_id: str
    turn_id: str
    call_id: str
    tenant_id: str
    user_id: str
    user: Principal
    idempotency_key: str
    person_id: str = ""
    approval_decision: Literal["approved"] | None = None
    approval_reason: str = ""
    decided_by: str = ""
    attempt: int = 1
    result_budget_chars: int = RESULT_CHARS_PER_BATCH
    route: str = ""
    step: str = ""
    capabilities: Granted = NOTHING_GRANTED

    @property
    def event_id(self) -> str:
        """What names this very call everywhere: `<tenant>.<session>.<turn>.<call>`, for every attempt the same."""
        return ApprovalKey(TurnKey(self.tenant_id, self.session_id, self.turn_id), self.call_id).id

    def hand_off(self) -> Handed:
        """What a handler returns that gave the work away under `event_id`, by which its result is brought later."""
        return Handed(self.event_id)
