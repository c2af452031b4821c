from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from signoff.contracts.activity_messages import UsedPermit, UseReply
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.workflows.external_permit import ExternalPermit, closing_reason, examine_use, use_problem, use_refusal

TRIES = st.sampled_from(["try-1", "try-2", "try-3"])
HANDED = UseReply(permit=UsedPermit(args=Content(inline={"euro": 20}), key="k", definition="d"))
REFUSALS = st.sampled_from([use_refusal("stale"), use_refusal("frozen"), use_refusal("unavailable")])


class PermitModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.permit = ExternalPermit()
        self.stopped = False
        self.was_opened = self.was_closed = False
        self.handed: dict[str, UseReply] = {}

    @precondition(lambda self: not self.was_opened)
    @rule()
    def judge(self) -> None:
        self.permit, self.was_opened = self.permit.open_up(), True

    @precondition(lambda self: self.was_opened and not self.was_closed)
    @rule()
    def close(self) -> None:
        self.permit, self.was_closed = self.permit.close(), True

    @rule()
    def stop(self) -> None:
        self.stopped = True

    @rule(wish=TRIES)
    def use(self, wish: str) -> None:
        reply = examine_use(self.permit, wish, stopped=self.stopped, why_closed="lapsed")
        if isinstance(reply, UseReply) and reply.permit is not None:
            assert self.handed == {wish: reply}
        elif isinstance(reply, UseReply):
            assert wish not in self.handed
            assert reply.code == ("used" if self.handed else "lapsed")
        elif reply == "":
            is_free = self.was_opened and not (self.was_closed or self.stopped or self.handed)
            assert (is_free, self.permit.tried_by) == (True, "")
            self.permit = self.permit.begin_try(wish)
        else:
            assert self.permit.tried_by
        # A use refused without a trace would also be refused with one.
        code = use_problem(self.permit, wish, "lapsed")
        assert not code or (isinstance(reply, UseReply) and reply.permit is None)

    @precondition(lambda self: self.permit.tried_by and self.permit.answer is None and not self.was_closed)
    @rule(reply=st.one_of(st.just(HANDED), REFUSALS))
    def answer(self, reply: UseReply) -> None:
        tried = self.permit.tried_by
        self.permit = self.permit.answer_try(reply)
        if reply.permit is not None:
            self.handed[tried] = reply

    @precondition(lambda self: self.permit.tried_by and self.permit.answer is not None)
    @rule()
    def hear(self) -> None:
        answer = self.permit.answer
        assert answer is not None
        assert answer.permit is None or self.handed == {self.permit.tried_by: answer}
        self.permit = self.permit.end_try()

    @invariant()
    def one_try(self) -> None:
        assert len(self.handed) <= 1
        assert (self.permit.used is not None) == bool(self.handed)


TestPermitModel = PermitModel.TestCase
TestPermitModel.settings = settings(stateful_step_count=30)


@given(is_asked=st.booleans(), stopped=st.booleans(), code=st.sampled_from(["", "ok", "denied", "skipped", "in_doubt"]))
def test_closed_permit_gives_its_reason(*, is_asked: bool, stopped: bool, code: str) -> None:
    fields = {"call": "c1.1", "tool": "refund", "code": code, "gate": "execute", "value": Content(inline="")}
    outcome = CallOutcome.model_validate(fields) if code else None
    expected = {"": "lapsed" if stopped else "waiting", "denied": "denied", "skipped": "lapsed"}.get(code, "ended")
    why = closing_reason(is_asked=is_asked, stopped=stopped, outcome=outcome)
    assert why == ("waiting" if is_asked else expected)


def test_unknown_refusal_code_means_unavailable() -> None:
    assert use_refusal("lapsed").message == "this permit was withdrawn, or not used in time"
    assert use_refusal("run it") == use_refusal("unavailable")


USED = ExternalPermit().open_up().begin_try("try-1").answer_try(HANDED).end_try()
"""A permit that the first use received."""


def test_second_use_waits_while_the_first_is_examined() -> None:
    opened = ExternalPermit().open_up()
    assert examine_use(opened, "try-1", stopped=False, why_closed="ended") == ""
    looked_at = opened.begin_try("try-1")
    assert examine_use(looked_at, "try-2", stopped=False, why_closed="ended") == "wait"
    answered = looked_at.answer_try(use_refusal("stale"))
    assert (answered.used, answered.used_by, answered.answer) == (None, "", use_refusal("stale"))
    assert examine_use(answered, "try-2", stopped=False, why_closed="ended") == "wait"
    left = answered.end_try()
    assert left.tried_by == ""
    assert examine_use(left, "try-2", stopped=False, why_closed="ended") == ""
    assert left.begin_try("try-2").answer is None


def test_used_permit_is_repeated_only_for_the_same_use() -> None:
    for permit in (USED, USED.close()):
        for stopped in (False, True):
            assert examine_use(permit, "try-1", stopped=stopped, why_closed="ended") == HANDED
            assert examine_use(permit, "try-2", stopped=stopped, why_closed="ended") == use_refusal("used")
        assert (use_problem(permit, "try-1", "ended"), use_problem(permit, "try-2", "ended")) == ("", "used")


def test_closed_permit_refuses_before_a_use_begins() -> None:
    opened = ExternalPermit().open_up()
    assert use_problem(ExternalPermit(), "try-1", "waiting") == "waiting"
    assert use_problem(opened, "try-1", "waiting") == ""
    assert use_problem(opened.close(), "try-1", "lapsed") == "lapsed"
    assert use_problem(opened.begin_try("try-1").close(), "try-2", "lapsed") == ""
    assert examine_use(opened, "try-1", stopped=True, why_closed="lapsed") == use_refusal("lapsed")


def test_use_examined_while_the_permit_lapses_is_refused() -> None:
    opened = ExternalPermit().open_up()
    assert opened.close() == ExternalPermit()
    tried = opened.begin_try("try-1")
    assert tried.close().answer == use_refusal("lapsed")
    assert tried.answer_try(HANDED).close().answer == HANDED
    assert tried.answer_try(use_refusal("stale")).close().answer == use_refusal("stale")
