from datetime import UTC, datetime, timedelta

from signoff.gateway.signed_state import StateSealer
from signoff.plugins.authzen.asked_call import AskedCall
from signoff.plugins.authzen.sealed_ids import (
    DENIAL_SECONDS,
    SealedCall,
    open_approval,
    open_denial,
    open_task,
    seal_approval,
    seal_denial,
    seal_task,
)

KEY = StateSealer(b"k" * 32)
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ASKED = AskedCall("main", "coder", "guest", "refund", {"euro": 20})
CALL = SealedCall("main.s.t", "coder")


def test_denial_id_carries_its_call_and_expiry() -> None:
    first, until = seal_denial(KEY, ASKED, NOW)
    second, _ = seal_denial(KEY, ASKED, NOW)
    assert first != second
    assert until == NOW + timedelta(seconds=DENIAL_SECONDS)
    assert open_denial(KEY, first) == (ASKED.digest, until)


def test_sealed_id_opens_only_for_its_purpose() -> None:
    task, approval, (denial, _) = seal_task(KEY, CALL), seal_approval(KEY, CALL), seal_denial(KEY, ASKED, NOW)
    assert (open_task(KEY, task), open_approval(KEY, approval)) == (CALL, CALL)
    for opens, strange in ((open_task, (approval, denial)), (open_approval, (task, denial))):
        for each in (*strange, "", "x", "e30.AAAA"):
            assert opens(KEY, each) is None
    assert open_denial(KEY, task) is None
    assert open_task(StateSealer(b"j" * 32), task) is None
