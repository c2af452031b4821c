from typing import Any

import pytest
from session_rig import message, model
from temporalio.client import WorkflowFailureError
from temporalio.common import WorkflowIDReusePolicy
from turn_fixtures import GUEST, Ledger, TurnRig, pay_tool

from signoff.contracts import names
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.message import user_message
from signoff.contracts.session_messages import SessionInput
from signoff.contracts.turn import TurnInput


def session_input(session: str) -> SessionInput:
    return SessionInput(engine=names.ENGINE, session_id=session, actor="desk", mailbox=(message("pay"),))


def turn_input(session: str, turn: str) -> TurnInput:
    return TurnInput(
        engine=names.ENGINE,
        session_id=session,
        turn_id=turn,
        actor="desk",
        messages=(user_message("pay"),),
        principal=GUEST,
    )


@pytest.mark.parametrize("kind", [names.SESSION, names.ACTOR_TURN])
@pytest.mark.parametrize("other", ["tenant", "session", "free"])
async def test_input_under_another_workflow_id_is_refused(turn_rig: TurnRig, kind: str, other: str) -> None:
    session, ledger = f"s{turn_rig.task_queue}"[:48], Ledger()
    given: Any = session_input(session) if kind == names.SESSION else turn_input(session, "t1")
    named: SessionKey | TurnKey = (
        SessionKey("main", session) if kind == names.SESSION else TurnKey("main", session, "t1")
    )
    used = {
        "tenant": named._replace(tenant="other").workflow_id,
        "session": named._replace(session=f"x{session}"[:48]).workflow_id,
        "free": f"any-{turn_rig.task_queue}",
    }[other]
    async with turn_rig.running([pay_tool(ledger)], model()) as turns:
        handle = await turn_rig.client.start_workflow(
            kind, given, id=used, task_queue=turn_rig.task_queue, id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE
        )
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
        assert str(failure.value.cause) == (
            f"OtherWorkflowId: workflow `{used}` has the input of `{named.workflow_id}`: start it under that id"
        )
        history = await handle.fetch_history()
        kinds = {event.WhichOneof("attributes") for event in history.events}
        assert not kinds & {
            "activity_task_scheduled_event_attributes",
            "start_child_workflow_execution_initiated_event_attributes",
            "signal_external_workflow_execution_initiated_event_attributes",
        }
        assert turns.signoff is not None
    assert ledger.rows == []
