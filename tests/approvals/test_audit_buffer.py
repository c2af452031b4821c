from datetime import UTC, datetime, timedelta
from typing import Any

from some import some
from tables import table

from signoff.approvals import deadlines
from signoff.approvals.approval_book import ApprovalBook
from signoff.approvals.audit_buffer import ENTRIES_KEPT, AuditBuffer, KnownFacts, fold_facts, unfold_facts, whole_facts
from signoff.approvals.audit_events import ended_entry
from signoff.contracts.activity_messages import AnswersReply, Authority
from signoff.contracts.approval import Settlement, TurnQuestion
from signoff.contracts.audit import AuditEntry
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.formats.replace import replace
from signoff.testing import a_decision

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ID = "main.s.t.c1.1"
MINUTE = timedelta(minutes=1)


QUESTION = TurnQuestion(id=ID, call="c1.1", tool="pay", question_hash="h", effect="Pay", digest="d" * 64, opened_at=NOW)
YES = AnswersReply(seen=1, settlement=Settlement(state="approved", decided_by="ana"))


def book(**fields: Any) -> ApprovalBook:
    made = ApprovalBook()
    made.open(replace(QUESTION, args=Content(inline={"to": "Lisbon"}), **fields))
    return made


def answer(**fields: Any) -> Decision:
    return a_decision(**{"revision": None, "delivery_id": "d1"} | fields)


def refused(made: ApprovalBook, decision: Decision, code: ReceiptCode, author: Authority | None = None) -> None:
    made.record_refusal(decision, Receipt(status="refused", code=code, approval_id=decision.approval_id), NOW, author)


def summary(made: ApprovalBook) -> list[tuple[str, str, str]]:
    taken = made.unwritten.take()
    return [(each.kind, str(each.data.get("status") or each.data.get("state")), each.subject) for each in taken]


def test_end_is_kept_and_a_stored_answer_is_not() -> None:
    made = book()
    made.take(QUESTION, YES, NOW)
    assert summary(made) == [("ending", "approved", "ana")]
    assert summary(made) == []
    made.lapse(ID, NOW)
    assert summary(made) == [("ending", "lapsed", "ana")]


def test_refused_raw_answer_is_kept_with_its_author() -> None:
    made = book()
    eve = Authority(allowed=False, code="not_allowed", subject="eve", assurance="channel")
    refused(made, answer(approval_id="main.s.t.c9.9"), "unknown")
    refused(made, answer(subject="claimed"), "not_allowed", eve)
    taken = made.unwritten.take()
    assert [(each.kind, each.data["receipt"], each.subject) for each in taken] == [
        ("attempt", "unknown", ""),
        ("attempt", "not_allowed", "eve"),
    ]
    assert {each.stream for each in taken} == {""}
    assert made.refused == 2


def test_timer_events_are_kept_and_the_last_is_the_end() -> None:
    made = book(on_timeout="escalate", timeout=60.0)
    for minutes in (1, 2):
        request = made.get(ID)
        due = some(None if request is None else deadlines.next_event(request))
        made.apply_due_event(ID, due, NOW + minutes * MINUTE)
    taken = made.unwritten.take()
    assert [(each.at, each.kind, each.data.get("event"), each.data.get("state")) for each in taken] == [
        (NOW + MINUTE, "delivery", "deadline", None),
        (NOW + 2 * MINUTE, "ending", None, "timed_out"),
    ]


def test_request_with_a_new_revision_has_no_end_entry() -> None:
    made = book()
    made.take(QUESTION, YES, NOW)
    made.lapse(ID, NOW)
    made.unwritten.take()
    made.open(replace(QUESTION, revision=2))
    assert summary(made) == []


def test_cancelled_request_has_an_end_entry() -> None:
    made = book()
    made.cancel(ID, "guest", "enough", NOW)
    assert summary(made) == [("ending", "cancelled", "guest")]


def test_entries_contain_no_arguments_and_truncate_long_text() -> None:
    made = book()
    refused(made, answer(edited_args={"to": "Lisbon"}), "not_allowed", Authority(allowed=False))
    refused(made, answer(approval_id="x" * 60_000, subject="y" * 60_000, delivery_id="z" * 60_000), "unknown")
    for each in made.unwritten.take():
        assert "Lisbon" not in each.model_dump_json()
        assert len(each.model_dump_json()) < 4_000


def entry(number: int, status: str = "refused") -> AuditEntry:
    at = NOW + timedelta(seconds=number)
    return AuditEntry(stream="x", key=f"k{number}", kind="attempt", at=at, tenant="x", data={"status": status})


def test_flood_of_refusals_is_counted_and_other_entries_are_kept() -> None:
    seen = AuditBuffer()
    for number in range(ENTRIES_KEPT + 30):
        seen.add(entry(number))
    request = some(book().get(ID))
    end = ended_entry(request, NOW)
    seen.add(end)
    *kept, told_end, dropped = seen.take()
    assert [each.key for each in kept] == [f"k{number}" for number in range(ENTRIES_KEPT)]
    assert told_end == replace(end, stream="", tenant="")
    last = entry(ENTRIES_KEPT + 29)
    found = {"key": f"dropped/{last.key}", "data": {"dropped": 30, "status": "refused"}}
    assert dropped == replace(last, **{"stream": "", "tenant": ""} | found)


def test_each_flood_is_counted_separately() -> None:
    seen = AuditBuffer()
    for number in range(ENTRIES_KEPT + 2):
        seen.add(entry(number))
    seen.take()
    assert seen.take() == ()
    for number in range(ENTRIES_KEPT + 1):
        seen.add(entry(number))
    assert seen.take()[-1].data["dropped"] == 1


def test_observations_of_a_turn_go_to_its_own_stream() -> None:
    seen = AuditBuffer()
    seen.add(entry(1))
    assert seen.take() == (replace(entry(1), stream="", tenant=""),)


@table("approval", ID, "main.s.other.c1.1")
def test_approval_of_the_own_turn_is_named_by_its_call(approval: str) -> None:
    turn = TurnKey("main", "s", "t")
    seen = AuditBuffer(turn)
    facts = [{"approval": approval, "status": "refused"}, {"approval": approval, "call": "c1.1"}]
    for number, each in enumerate(facts):
        seen.add(replace(entry(number), data=each))
    taken = [each.data for each in seen.take()]
    assert [("approval" in each) for each in taken] == [approval != ID] * 2
    assert [whole_facts(each, turn) for each in taken] == facts


def test_unwritten_entries_return_to_the_front() -> None:
    seen = AuditBuffer()
    seen.add(entry(1))
    seen.add(entry(1))
    taken = seen.take()
    seen.add(entry(2))
    seen.give_back(taken)
    assert [each.key for each in seen.take()] == ["k1", "k2"]


def test_facts_about_an_approval_contain_only_its_call() -> None:
    turn = TurnKey("main", "s", "t")
    for facts in ({"call": "c1.1", "state": "denied"}, {"state": "denied"}, {"call": "c2.1"}):
        buffer = AuditBuffer(turn)
        whole = {"approval": ID} | facts
        buffer.add(AuditEntry(stream="turn/main/s/t", key="k", kind="ending", at=NOW, tenant="main", data=whole))
        (taken,) = buffer.take()
        assert "approval" not in taken.data
        assert len(taken.data) == len(facts) + (facts.get("call") != "c1.1")
        assert whole_facts(taken.data, turn) == whole


def test_known_facts_are_omitted_in_transit_and_restored() -> None:
    facts = KnownFacts("ending/c1.1/", {"digest": "d" * 64, "channel": "api"})

    def entry(key: str, **data: Any) -> AuditEntry:
        return AuditEntry(stream="s", key=key, kind="ending", at=NOW, data={"state": "approved", **data})

    known = entry("ending/c1.1/1/approved", digest="d" * 64, channel="api")
    others = (
        entry("ending/c1.1/2/approved", digest="e" * 64, channel="api"),
        entry("ending/c1.1/3/approved", digest="d" * 64),
        entry("ending/c1.10/1/approved", digest="d" * 64, channel="api"),
        entry("ending/c1.10/2/approved"),
    )
    folded = fold_facts((known, *others), facts)
    assert folded[0].data == {"state": "approved"}
    assert folded[1:] == others
    assert unfold_facts(folded, facts) == (known, *others)


def test_entry_of_known_facts_alone_is_folded_to_no_facts() -> None:
    entry = AuditEntry(
        stream="turn/main/s/t", key="turn/begun", kind="turn", at=NOW, tenant="main", subject="guest",
        data={"actor": "desk"},
    )  # fmt: skip
    facts = KnownFacts("turn/begun", {"actor": "desk"})
    folded = fold_facts((entry,), facts)
    assert [each.data for each in folded] == [{}]
    assert unfold_facts(folded, facts) == (entry,)
