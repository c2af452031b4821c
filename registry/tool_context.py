"""The context of a call for its handler."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.contracts.person import Principal
from signoff.contracts.preview import AnyPart
from signoff.registry.capabilities import NOTHING_GRANTED, GrantedCapabilities
from signoff.registry.tool_result import HandOff


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The second argument of every handler and probe: the call to run."""

    actor_name: str
    """The calling actor."""
    session_id: str
    turn_id: str
    call_id: str
    """The call's id within its turn, such as `c1.2`."""
    tenant_id: str
    user_id: str
    """The requester's id."""
    user: Principal
    """The requester, as the gateway knew them when the call was proposed.

    For a subscription, `tier`, `roles` and `person_id` raise `LookupError`.
    """
    idempotency_key: str
    """The same for every attempt of one call, also after a crash, a reset or a redeploy."""
    person_id: str = ""
    """The id of the human behind `user_id`, the same for all their accounts; "" for a subscription."""
    approval_decision: Literal["approved"] | None = None
    """`approved` if approvers were asked. A denied call never reaches a handler."""
    approval_reason: str = ""
    """The reason from the last approver."""
    decided_by: str = ""
    """The ids of all approvers who decided, joined by `, `."""
    attempt: int = 1
    """The number of this attempt, from 1."""
    result_budget_chars: int = RESULT_CHARS_PER_BATCH
    """How many characters of the result the model will read."""
    route: str = ""
    """The actor's route. Empty if it has none."""
    step: str = ""
    """The route's step. Empty if there is none."""
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The declared context fields, the requester's attributes under `user`. Read-only."""
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The session's collected data. Read-only."""
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The tool's `settings` from manifest or code. Read-only."""
    previewed: Mapping[str, AnyPart] = field(default_factory=dict, hash=False)
    """The parts of the preview that the tool binds, by name, as they are now. Compare with them to detect a change."""
    capabilities: GrantedCapabilities = NOTHING_GRANTED
    """The declared capabilities of the tool, and no others."""

    @property
    def event_id(self) -> str:
        """The global id of this call, `<tenant>.<session>.<turn>.<call>`. The same for every attempt."""
        return ApprovalKey(TurnKey(self.tenant_id, self.session_id, self.turn_id), self.call_id).id

    def hand_off(self) -> HandOff:
        """Return a result for work that continues elsewhere, for the handler to return.

        The call succeeds. `Client.add_result(context.event_id, ...)` brings the final result.
        """
        return HandOff(self.event_id)
