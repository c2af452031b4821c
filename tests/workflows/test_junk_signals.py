import logging

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from turn_fixtures import Ledger, TurnRig, pay_tool, yes

from signoff.contracts.names import APPROVAL_RESPONSE
from signoff.testing.scripted_model import calls, respond

JUNK = [
    Payload(metadata={"encoding": b"json/plain"}, data=b"\xff{"),
    Payload(metadata={"encoding": b"who/knows"}, data=b"x"),
    Payload(data=b"\x00\n"),
]


async def test_undecodable_signals_log_one_line_each_without_traceback(
    turn_rig: TurnRig, caplog: pytest.LogCaptureFixture
) -> None:
    script = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]
    with caplog.at_level(logging.WARNING):
        async with turn_rig.running([pay_tool(Ledger())], script) as turns:
            key = await turns.start_waiting()
            handle = turn_rig.client.get_workflow_handle(key.workflow_id)
            for payload in JUNK:
                await handle.signal(APPROVAL_RESPONSE, RawValue(payload))
            await turns.happened(key, "WORKFLOW_EXECUTION_SIGNALED", len(JUNK))
            assert (await turns.signoff.decide(yes(key))).status == "accepted"
            result = await turns.signoff.result(key)
    assert [each.code for each in result.calls] == ["ok"]
    told = [each for each in caplog.records if "dropping the signal" in each.getMessage()]
    assert len(told) == len(JUNK)
    assert {(each.levelname, each.exc_info, each.exc_text) for each in told} == {("WARNING", None, None)}
    assert all("\n" not in each.getMessage() for each in told)
