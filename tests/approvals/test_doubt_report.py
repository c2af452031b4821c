from tables import table

from signoff.approvals.doubt_report import happened_outcome
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision


@table(("result", "expected"), ("receipt 17", "receipt 17"), ("", "It happened."))
def test_confirmed_call_has_a_result_marked_as_a_persons_report(result: str, expected: str) -> None:
    word = Decision(
        approval_id="main.s.t.c1.1", verdict="happened", result=result, subject="ana", reason="I called the bank"
    )
    assert happened_outcome("c1.1", "pay", word) == CallOutcome(
        call="c1.1",
        tool="pay",
        code="ok",
        gate="execute",
        value=Content(inline=expected),
        approval_id="main.s.t.c1.1",
        decided_by="ana",
        note="The tool did not answer; a person says that this happened.",
    )
