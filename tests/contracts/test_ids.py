from signoff.contracts.ids import ApprovalKey, TurnKey, call_id, call_of_stand_in, parse_approval_id, stand_in_id
from signoff.contracts.limits import CALLS_KEPT_PER_COMPLETION, MAX_FALLBACKS


def test_fallback_id_never_equals_a_call_or_another_fallback() -> None:
    proposed = [call_id(3, index) for index in range(1, CALLS_KEPT_PER_COMPLETION + 1)]
    standing_in = [stand_in_id(call, number) for call in proposed for number in range(1, MAX_FALLBACKS + 1)]
    assert stand_in_id("c3.2", 1) == "c3.1002"
    assert len({*proposed, *standing_in}) == len(proposed) + len(standing_in)
    keys = [ApprovalKey(TurnKey("main", "s", "t"), call) for call in standing_in]
    assert all(parse_approval_id(key.id) == key for key in keys)
    assert [call_of_stand_in(each) for each in proposed] == proposed
    assert {call_of_stand_in(each) for each in standing_in} == set(proposed)
