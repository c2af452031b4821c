"""A deliberate mistake: the turn waits a second before it starts, which no recorded history contains."""

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from signoff.contracts import names
    from signoff.contracts.turn import TurnInput, TurnResult
    from signoff.workflows.actor_turn import ActorTurn


@workflow.defn(name=names.ACTOR_TURN)
class Hesitant(ActorTurn):
    @workflow.init
    def __init__(self, turn: TurnInput) -> None:
        super().__init__(turn)

    @workflow.run
    async def run(self, turn: TurnInput) -> TurnResult:
        await asyncio.sleep(1)
        return await super().run(turn)
