"""What single answers of a gateway say of a call."""

import pytest

from signoff_client.messages import Reply
from signoff_client.status import CallStatus, explain, read_permit, read_status


def test_an_answer_is_of_one_call() -> None:
    """Of the one that was asked about, where that is known."""
    permitted = Reply(200, {"id": "main.a.b", "state": "permitted", "args": {"euro": 1}})
    assert read_status(permitted).state == "permitted"
    assert read_status(permitted, "main.a.b").state == "permitted"
    assert read_status(permitted, "main.a.c").state == "unreachable"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("used", "Not run: its permit was used before"),
        ("lapsed", "Not run: its permit was not used in time"),
        ("frozen", "Not run: everything is stopped at present"),
        ("stale", "Not run: what was approved is not what would run"),
        ("denied", "Not run: it must not run: why"),
        ("other", "Not run: it must not run: why"),
    ],
)
def test_a_permit_that_is_not_handed_out_is_none(code: str, words: str) -> None:
    """Each reason is one for the model."""
    status = read_permit(Reply(409, {"code": code, "message": "why"}), CallStatus("permitted", "main.a.b"))
    assert explain(status).startswith(words)
