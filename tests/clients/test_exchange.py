from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff_client.exchange import CallExchange, Exchange, SuspendedUse
from signoff_client.messages import Failure, Pause, Proposal, Reply, Request
from signoff_client.status import CallStatus, explain

PERMITTED = {"id": "main.a.b", "state": "permitted", "args": {"euro": 1}}
WAITING = {"id": "main.a.b", "state": "waiting", "code": "K7Q-2FM"}
PERMIT = {"args": {"euro": 1}, "key": "k", "note": ""}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def carry(
    exchange: Exchange[Any], clock: Clock, replies: Sequence[Reply | Failure], takes: float = 0.0
) -> tuple[Any, list[Request | Pause]]:
    asked: list[Request | Pause] = []
    left, reply = list(replies), None
    while True:
        try:
            step = exchange.send(reply)
        except StopIteration as end:
            return end.value, asked
        asked.append(step)
        if isinstance(step, Pause):
            clock.now += step.seconds
            reply = None
        else:
            clock.now += takes
            reply = left.pop(0) if len(left) > 1 else left[0]


def requests(asked: Sequence[Request | Pause]) -> list[Request]:
    return [each for each in asked if isinstance(each, Request)]


def exchange_of(clock: Clock, *, patience: float = 0.0, **fields: Any) -> CallExchange:
    return CallExchange(Proposal("refund", {"euro": 1}, **fields), patience, clock)


STRANGE = [
    Reply(200),
    Reply(200, {}),
    Reply(200, {"id": "main.a.b"}),
    Reply(200, {"id": "main.a.b", "state": "approved"}),
    Reply(200, {"id": "main.a.b", "state": ["permitted"]}),
    Reply(200, {"id": "../approvals/x", "state": "permitted"}),
    Reply(200, {"id": 7, "state": "permitted"}),
    Reply(204, PERMITTED),
    Reply(302, PERMITTED),
    Reply(401, PERMITTED),
    Reply(500, PERMITTED),
    Failure("gone"),
]


@table("reply", *STRANGE)
def test_invalid_answer_means_no_run(reply: Reply | Failure) -> None:
    for before in ([], [Reply(201, WAITING)]):
        clock = Clock()
        status, _ = carry(exchange_of(clock).obtain(), clock, [*before, reply])
        assert status.state in ("unreachable", "refused")
        assert explain(status).startswith("Not run: ")


@table(
    "reply",
    *(each for each in STRANGE if not isinstance(each, Reply) or each.status != 401),
    Reply(200, {"key": "k"}),
    Reply(200, {"args": [1], "key": "k"}),
    Reply(200, {"args": {"euro": 1}}),
    Reply(201, PERMIT),
)
def test_invalid_answer_to_the_use_of_a_permit_means_no_run(reply: Reply | Failure) -> None:
    clock = Clock()
    status, asked = carry(exchange_of(clock).obtain(), clock, [Reply(200, PERMITTED), reply])
    assert status.state == "unreachable"
    assert [each.path for each in requests(asked)] == ["/v1/calls", "/v1/calls/main.a.b/use"]


def test_answer_of_another_call_means_no_run() -> None:
    clock = Clock()
    other = Reply(200, PERMITTED | {"id": "main.a.c"})
    status, asked = carry(exchange_of(clock).obtain(), clock, [Reply(201, WAITING), other])
    assert (status.state, status.id) == ("unreachable", "main.a.b")
    assert [each.method for each in requests(asked)] == ["POST", "GET"]


@table("code", "waiting", "stale")
def test_call_with_a_renewed_request_waits_again(code: str) -> None:
    clock = Clock()
    again = Reply(409, {"code": code, "message": "asked again"})
    replies = [Reply(200, PERMITTED), again, Reply(200, WAITING), Reply(200, PERMITTED), Reply(200, PERMIT)]
    status, asked = carry(exchange_of(clock).obtain(), clock, replies, takes=1)
    assert (status.state, status.args) == ("permitted", {"euro": 1})
    assert [each.method for each in requests(asked)] == ["POST", "POST", "GET", "GET", "POST"]


def test_stale_permit_is_checked_again_a_limited_number_of_times() -> None:
    stale = Reply(409, {"code": "stale", "message": "it is judged again"})
    clock = Clock()
    replies = [Reply(200, PERMITTED), *[stale, Reply(200, PERMITTED)] * 3, stale]
    status, asked = carry(exchange_of(clock).obtain(), clock, replies, takes=1)
    assert (status.state, status.source) == ("denied", "stale")
    assert len([each for each in asked if isinstance(each, Request) and each.path.endswith("/use")]) == 4
    clock = Clock()
    status, _ = carry(exchange_of(clock, wait=0).obtain(), clock, [Reply(200, PERMITTED), stale])
    assert status.state == "waiting"


def test_wait_is_a_series_of_held_requests() -> None:
    clock = Clock()
    status, asked = carry(exchange_of(clock, wait=70).obtain(), clock, [Reply(201, WAITING)], takes=30)
    holds = [each.hold for each in requests(asked)]
    assert (status.state, holds) == ("waiting", [0.0, 30.0, 10.0])
    clock = Clock()
    status, asked = carry(exchange_of(clock, wait=70).obtain(), clock, [Reply(201, WAITING)])
    assert len(requests(asked)) < 80
    assert clock.now == pytest.approx(70)


def test_silent_gateway_is_retried_during_the_patience() -> None:
    clock = Clock()
    status, asked = carry(exchange_of(clock, patience=60, key="k").obtain(), clock, [Failure("gone")])
    pauses = [each.seconds for each in asked if isinstance(each, Pause)]
    assert status.state == "unreachable"
    assert clock.now == pytest.approx(60)
    assert 6 < len(pauses) < 40
    assert len({*requests(asked)}) == 1
    clock = Clock()
    busy = Reply(429, {"message": "too much at once"}, retry_after=20)
    status, asked = carry(exchange_of(clock, patience=60).obtain(), clock, [busy])
    assert [each.seconds for each in asked if isinstance(each, Pause)] == [20, 20, 20]
    assert "too much at once" in explain(status)


def test_patience_restarts_with_each_request() -> None:
    clock = Clock()
    replies = [
        Reply(201, WAITING),
        *[Failure("gone"), Reply(200, WAITING)] * 50,
        Reply(200, PERMITTED),
        Reply(200, PERMIT),
    ]
    status, _ = carry(exchange_of(clock, patience=20).obtain(), clock, replies, takes=15)
    assert status.state == "permitted"


def test_rejected_report_is_sent_as_text() -> None:
    clock = Clock()
    exchange = exchange_of(clock)
    problem, asked = carry(exchange.report("ok", {"a": 2**60}), clock, [Reply(403, {"message": "no"}), Reply(200)])
    assert (problem, [each.body for each in requests(asked)][1]) == (
        "",
        b'{"code":"ok","result":"{\\"a\\": 1152921504606846976}"}',
    )
    problem, asked = carry(
        exchange.report("ok", 1), clock, [Reply(409, {"code": "conflict", "message": "another was recorded"})]
    )
    assert (problem, len(asked)) == ("another was recorded", 1)


@table(("status", "times"), (400, 2), (403, 2), (499, 2), (399, 1), (500, 1), (501, 1))
def test_refused_report_is_sent_as_text_once(status: int, times: int) -> None:
    clock = Clock()
    exchange = exchange_of(clock)
    exchange.id = "main.a.b"
    problem, asked = carry(exchange.report("in_doubt", {"a": 1}), clock, [Reply(status, {"message": "no"})])
    assert (problem, len(asked)) == ("no", times)
    sent = {(each.method, each.path) for each in requests(asked)}
    assert sent == {("POST", "/v1/calls/main.a.b/outcome")}


@table("code", "sign_in", "scope", "not_found", "not_used", "conflict")
def test_report_with_a_permanent_refusal_is_sent_once(code: str) -> None:
    clock = Clock()
    exchange = exchange_of(clock)
    exchange.id = "main.a.b"
    problem, asked = carry(exchange.report("ok", 1), clock, [Reply(409, {"code": code, "message": "no"})])
    assert problem == "no"
    assert asked == [Request("POST", "/v1/calls/main.a.b/outcome", b'{"code":"ok","result":1}')]
    assert carry(exchange.report("ok", 1), clock, [Failure("gone")])[0] == "gone"
    assert carry(exchange.report("ok", 1), clock, [Reply(200, {})])[0] == ""
    # Any other answer has not accepted it.
    assert carry(exchange.report("ok", 1), clock, [Reply(204)])[0] == "HTTP 204"


def test_call_is_proposed_and_used_under_the_given_names() -> None:
    clock = Clock()
    exchange = exchange_of(clock, key="k")
    handed, asked = carry(exchange.obtain(), clock, [Reply(201, PERMITTED), Reply(200, PERMIT)])
    assert (handed.state, exchange.id) == ("permitted", "main.a.b")
    assert asked == [
        Request("POST", "/v1/calls", b'{"tool":"refund","args":{"euro":1}}', "k"),
        Request("POST", "/v1/calls/main.a.b/use", b"{}", exchange.attempt),
    ]
    assert len({exchange.attempt, exchange_of(clock).attempt, ""}) == 3
    _, asked = carry(exchange_of(clock).settle(), clock, [Reply(201, PERMITTED)])
    assert [each.key for each in requests(asked)] == [""]


def test_settled_call_is_not_proposed_again() -> None:
    clock = Clock()
    exchange = exchange_of(clock)
    settled, asked = carry(exchange.settle(), clock, [Reply(201, PERMITTED)])
    assert (settled.state, len(asked)) == ("permitted", 1)
    handed, asked = carry(exchange.obtain(settled), clock, [Reply(200, PERMIT)])
    assert (handed.state, [each.path for each in requests(asked)]) == (
        "permitted",
        ["/v1/calls/main.a.b/use"],
    )


@table(("is_repeated", "state", "requests"), (False, "used", 1), (True, "permitted", 2))
def test_used_permit_is_requested_by_the_same_attempt_only(is_repeated: bool, state: str, requests: int) -> None:
    clock = Clock()
    exchange = exchange_of(clock)
    exchange.is_repeated = is_repeated
    status, asked = carry(exchange.obtain(), clock, [Reply(200, PERMITTED | {"state": "used"}), Reply(200, PERMIT)])
    assert (status.state, len(asked)) == (state, requests)
    denied, asked = carry(exchange.obtain(), clock, [Reply(200, PERMITTED | {"state": "denied"}), Reply(200, PERMIT)])
    assert (denied.state, len(asked)) == ("denied", 1)


@table("state", "used", "permitted", "denied")
def test_suspended_use_is_repeated_unless_the_call_was_denied(state: str) -> None:
    clock, suspended = Clock(), dict[str, SuspendedUse]()
    before = exchange_of(clock)
    before.suspended = suspended
    status, _ = carry(before.obtain(), clock, [Reply(201, PERMITTED), Reply(200, PERMIT)])
    before.suspend(status)
    settling = exchange_of(clock)
    settling.suspended = suspended
    settled, _ = carry(settling.settle(), clock, [Reply(201, PERMITTED | {"state": state})])
    assert settled.state == ("permitted" if state == "used" else state)
    after = exchange_of(clock)
    after.suspended = suspended
    resumed, asked = carry(after.obtain(), clock, [Reply(201, PERMITTED | {"state": state}), Reply(200, PERMIT)])
    keys = [each.key for each in requests(asked) if each.path.endswith("/use")]
    assert (resumed.state, keys) == (("denied", []) if state == "denied" else ("permitted", [before.attempt]))
    assert not suspended


def test_oldest_suspended_use_is_dropped_at_the_limit() -> None:
    clock, suspended = Clock(), dict[str, SuspendedUse]()
    status = CallStatus("permitted")
    for number in range(1_001):
        exchange = exchange_of(clock)
        exchange.suspended, exchange.id = suspended, str(number)
        exchange.suspend(status)
    assert list(suspended) == [str(number) for number in range(1, 1_001)]


def test_call_proposed_by_another_program_is_read() -> None:
    clock = Clock()
    exchange = exchange_of(clock)
    exchange.is_found, exchange.id = True, "main.a.b"
    status, asked = carry(exchange.settle(), clock, [Reply(200, PERMITTED)])
    assert (status.state, asked) == ("permitted", [Request("GET", "/v1/calls/main.a.b")])
    assert carry(exchange.settle(), clock, [Reply(200, PERMITTED | {"id": "main.a.c"})])[0].state == "unreachable"
    exchange.id = "../approvals/x"
    with pytest.raises(StopIteration) as ended:
        next(exchange.settle())
    assert (ended.value.value.state, ended.value.value.reason) == ("refused", "this is not a call's id")


def test_non_json_arguments_are_reported_and_not_sent() -> None:
    clock = Clock()
    exchange = CallExchange(Proposal("refund", {"euro": {1}}), 0.0, clock)
    with pytest.raises(StopIteration) as ended:
        next(exchange.settle())
    assert ended.value.value.state == "refused"
    assert ended.value.value.reason.startswith("its arguments cannot be sent as JSON (Object of type set")


def test_withdrawal_needs_a_known_call() -> None:
    clock = Clock()
    exchange = exchange_of(clock)
    with pytest.raises(StopIteration) as ended:
        next(exchange.withdraw())
    assert ended.value.value == "the gateway has not named this call"
    exchange.id = "main.a.b"
    gone, asked = carry(exchange.withdraw(), clock, [Reply(200, PERMITTED | {"state": "denied"})])
    assert (gone, asked) == ("", [Request("DELETE", "/v1/calls/main.a.b")])
    ran = Reply(200, {"id": "main.a.b", "state": "ended", "code": "ok", "result": "paid"})
    assert carry(exchange.withdraw(), clock, [ran])[0] == "paid"
    other = Reply(200, PERMITTED | {"id": "main.a.c", "state": "denied"})
    assert "not a gateway of this version" in carry(exchange.withdraw(), clock, [other])[0]


@table(("takes", "pauses"), (0.0, [1.0, 1.0, 0.5]), (0.25, [0.75, 0.75]), (1.0, []))
def test_gateway_without_held_requests_is_polled_once_a_second(takes: float, pauses: list[float]) -> None:
    clock = Clock()
    _, asked = carry(exchange_of(clock, wait=2.5).settle(), clock, [Reply(201, WAITING), Reply(200, WAITING)], takes)
    assert [each.seconds for each in asked if isinstance(each, Pause)] == pauses
    looks = requests(asked)[1:]
    assert looks[0] == Request("GET", f"/v1/calls/main.a.b?wait={2.5 - takes:.3f}", hold=2.5 - takes)


def test_call_without_a_wait_is_not_polled() -> None:
    clock = Clock()
    status, asked = carry(exchange_of(clock, wait=0).settle(), clock, [Reply(201, WAITING)])
    assert (status.state, len(asked)) == ("waiting", 1)


def test_pauses_double_with_random_variation() -> None:
    clock = Clock()
    seen: list[float] = []
    _, asked = carry(exchange_of(clock, patience=120).settle(), clock, [Failure("gone")])
    pauses = [each.seconds for each in asked if isinstance(each, Pause)]
    bound = 0.25
    for each in pauses[:-1]:
        assert bound / 2 <= each <= bound
        seen.append(each / bound)
        bound = min(2 * bound, 15.0)
    assert len({*seen}) > 1
    assert sum(pauses) == pytest.approx(120)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["permitted", "waiting", "used"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["main.a.b", "main.a.c", "", "a/b"]) | ANY,
        "state": st.sampled_from(["waiting", "running", "permitted", "used", "denied", "ended"]) | ANY,
        "args": st.just({"euro": 1}) | ANY,
        "key": st.text(max_size=3) | ANY,
        "code": st.sampled_from(["used", "waiting", "frozen"]) | ANY,
        "message": ANY,
        "result": ANY,
    },
)
REPLIES = st.builds(Failure, st.text(max_size=3)) | st.builds(
    Reply, st.sampled_from([200, 200, 200, 201, 204, 302, 401, 403, 404, 409, 422, 429, 500, 503]), st.none() | BODIES
)


@given(st.lists(REPLIES, min_size=1, max_size=8))
def test_no_answers_permit_a_run_without_a_permit(replies: list[Reply | Failure]) -> None:
    clock = Clock()
    exchange, answered, asked = exchange_of(clock, wait=200).obtain(), [], []
    reply: Reply | Failure | None = None
    left = [*replies, Failure("gone")]
    while True:
        try:
            step = exchange.send(reply)
        except StopIteration as end:
            status = end.value
            break
        reply = None
        if isinstance(step, Pause):
            clock.now += step.seconds
        else:
            reply = left.pop(0)
            asked.append(step)
            answered.append(reply)
    assert isinstance(explain(status), str)
    last = answered[-1]
    if status.state == "permitted":
        assert asked[-1].path.endswith("/use")
        assert isinstance(last, Reply)
        assert last.body is not None
        assert (last.status, last.body["args"], last.body["key"]) == (200, status.args, status.key)
    else:
        assert explain(status).startswith("Not run") or status.state == "ended"
