"""The turn of one external agent's call."""

from dataclasses import dataclass
from typing import NamedTuple

from signoff.contracts.call import CallContext, ProposedExternalCall
from signoff.contracts.ids import TurnKey, turn_name
from signoff.contracts.person import Principal
from signoff.contracts.responses import CallAnswer
from signoff.contracts.turn import TurnInput
from signoff.store.questions.turn_stamps import TurnStamp


@dataclass(frozen=True)
class ExternalTurn:
    """The turn of one external call. The gateway began it for this agent."""

    key: TurnKey
    given: TurnInput
    call: ProposedExternalCall
    requester: Principal

    @property
    def name(self) -> str:
        return turn_name(self.key)

    @property
    def ctx(self) -> CallContext:
        return CallContext(
            actor=self.given.actor,
            session=self.key.session,
            turn=self.key.turn,
            tenant=self.key.tenant,
            channel=self.given.channel,
            user=self.requester,
            extra=self.given.context,
        )


class KnownCall(NamedTuple):
    """The answer about a call. It is valid while its turn has this stamp."""

    stamp: TurnStamp
    answer: CallAnswer


def make_external_turn(given: TurnInput, call: ProposedExternalCall) -> ExternalTurn:
    """Call only for a turn that this gateway has just started: the principal is not verified."""
    return ExternalTurn(TurnKey(given.tenant_id, given.session_id, given.turn_id), given, call, given.principal)
