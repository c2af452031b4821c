from datetime import UTC, datetime

from session_rig import message

from signoff.contracts import names
from signoff.contracts.limits import MAX_TURNS_PER_MESSAGE, SESSION_WINDOW_TURNS
from signoff.contracts.message import user_message
from signoff.contracts.session_messages import FollowUp, LateResult, MailboxMessage, SessionInput, TurnReport
from signoff.contracts.turn import TurnError, TurnInput
from signoff.formats.replace import replace
from signoff.workflows.conversation import Conversation

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def _talk() -> Conversation:
    return Conversation(SessionInput(engine=names.ENGINE, session_id="s", actor="desk"))


def _begin(talk: Conversation) -> TurnInput:
    item = talk.next(NOW)
    assert isinstance(item, FollowUp | MailboxMessage)
    return talk.begin(item, NOW)


def _answer(talk: Conversation, text: str, left_open: int = 0) -> TurnInput:
    talk.say((message(text, text).model_dump(mode="json"),), NOW)
    turn = _begin(talk)
    _end(talk, turn.turn_id, left_open)
    return turn


def _end(talk: Conversation, turn: str, left_open: int = 0) -> None:
    talk.report((TurnReport(turn=turn, state="complete", left_open=left_open).model_dump(mode="json"),), NOW)


def _outcome(talk: Conversation, turn: str, number: int = 1) -> tuple[str, str]:
    letter = LateResult(id=f"o{number}", turn=turn, message=user_message("paid"), outcome_of=f"c1.{number}")
    receipt = talk.inject((letter.model_dump(mode="json"),), NOW)
    return receipt.status, receipt.turn


def test_turn_is_kept_until_its_open_outcome_arrives() -> None:
    talk = _talk()
    _answer(talk, "first", left_open=1)
    for number in range(SESSION_WINDOW_TURNS + 5):
        _answer(talk, f"m{number}")
    assert [turn.turn for turn in talk.view().turns][:1] == ["first"]
    assert _outcome(talk, "first") == ("accepted", "first-2")
    assert _begin(talk).turn_id == "first-2"
    assert talk.view().turns[0].left_open == 0


def test_repeated_outcome_counts_once() -> None:
    talk = _talk()
    _answer(talk, "first", left_open=2)
    assert [_outcome(talk, "first"), _outcome(talk, "first")] == [("accepted", "first-2"), ("accepted", "first")]
    assert talk.view().turns[0].left_open == 1


def test_each_open_outcome_keeps_its_reserved_turn() -> None:
    talk = _talk()
    first = _answer(talk, "first", left_open=MAX_TURNS_PER_MESSAGE - 2)
    assert first.may_leave == MAX_TURNS_PER_MESSAGE - 2
    other = LateResult(id="other", turn="first", message=user_message("more"))
    assert talk.inject((other.model_dump(mode="json"),), NOW).status == "accepted"
    assert _begin(talk).may_leave == 0
    _end(talk, "first-2")
    refused = talk.inject((replace(other, id="again").model_dump(mode="json"),), NOW)
    assert (refused.status, refused.code) == ("refused", "full")
    for number in range(1, MAX_TURNS_PER_MESSAGE - 1):
        assert _outcome(talk, "first", number)[0] == "accepted"
        turn = _begin(talk)
        assert turn.messages[-1] == replace(user_message("paid"), late=True)
        _end(talk, turn.turn_id)
    assert _outcome(talk, "first", MAX_TURNS_PER_MESSAGE)[0] == "refused"


def test_lost_turn_leaves_no_call_open() -> None:
    talk = _talk()
    _answer(talk, "first", left_open=1)
    talk.record_lost_turn("first", TurnError(code="stopped", message="stopped"), NOW)
    [turn] = talk.view().turns
    assert (turn.state, turn.left_open) == ("complete", 0)
