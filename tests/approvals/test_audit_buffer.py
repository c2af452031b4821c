from datetime import UTC, datetime, timedelta
from typing import Any

from some import some
from tables import table

from signoff.approvals import deadlines
from signoff.approvals.approval_book import ApprovalBook
from signoff.approvals.audit_buffer import ENTRIES_KEPT, AuditBuffer, KnownFacts, fold_facts, unfold_facts, whole_facts
from signoff.approvals.audit_events import ended_entry
from signoff.contracts.activity_messages import Authority
from signoff.contracts.audit import AuditEntry
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.testing import a_decision, a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ID = "main.s.t.c1.1"
MINUTE = timedelta(minutes=1)
ANA = Authority(allowed=True, subject="ana", assurance="session")


def book(**fields: Any) -> ApprovalBook:
    made = ApprovalBook()
    made.open(a_request(opened=NOW, **{"digest": "d" * 64, "args": Content(inline={"to": "Lisbon"})} | fields), NOW)
    return made


def answer(**fields: Any) -> Decision:
    return a_decision(**{"revision": None, "delivery_id": "d1"} | fields)


def summary(made: ApprovalBook) -> list[tuple[str, str, str]]:
    taken = made.unwritten.take()
    return [(each.kind, str(each.data.get("status") or each.data.get("state")), each.subject) for each in taken]


def test_decision_and_its_end_are_kept_in_order() -> None:
    made = book()
    made.settle(answer(subject="ana@x"), ANA, NOW)
    assert summary(made) == [("attempt", "accepted", "ana"), ("ending", "approved", "ana")]
    assert summary(made) == []
    made.lapse(ID, NOW)
    assert summary(made) == [("ending", "lapsed", "ana")]


def test_every_kind_of_refused_attempt_is_kept() -> None:
    made = book()
    made.precheck(answer(approval_id="main.s.t.c9.9"), NOW)
    made.precheck(answer(revision=7), NOW)
    made.settle(answer(), Authority(allowed=False, code="not_allowed", subject="eve"), NOW)
    made.examine(answer(delivery_id="d2"), Authority(allowed=False, code="assurance"), NOW)
    made.settle(answer(delivery_id="d3"), ANA, NOW)
    made.precheck(answer(delivery_id="d3"), NOW)
    made.precheck(answer(delivery_id="d4"), NOW)
    taken = made.unwritten.take()
    assert [each.data.get("receipt") for each in taken if each.kind == "attempt"] == [
        "unknown", "stale", "not_allowed", "assurance", None, "duplicate", "already_decided",
    ]  # fmt: skip
    assert {each.stream for each in taken} == {""}


def test_identified_person_is_named_in_every_attempt() -> None:
    made, unknown = book(quorum=2), "main.s.t.c9.9"
    eve = Authority(allowed=False, code="not_allowed", subject="eve", assurance="channel")
    made.examine(answer(approval_id=unknown, subject="claimed"), eve, NOW)
    made.settle(answer(approval_id=unknown, subject="claimed", delivery_id="d2"), eve, NOW)
    made.examine(answer(subject="claimed"), eve, NOW)
    made.settle(answer(subject="claimed"), ANA, NOW)
    made.settle(answer(subject="claimed"), ANA, NOW + MINUTE)
    attempts = made.unwritten.take()
    assert [(each.data.get("receipt", ""), each.subject) for each in attempts] == [
        ("unknown", "eve"), ("unknown", "eve"), ("not_allowed", "eve"), ("", "ana"), ("duplicate", "ana"),
    ]  # fmt: skip
    made.examine(answer(subject="claimed"), ANA, NOW + MINUTE)
    (again,) = made.unwritten.take()
    assert (again.data["receipt"], again.subject, again.data["assurance"]) == ("duplicate", "ana", "session")


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
    made.settle(answer(), ANA, NOW)
    lapsed = made.lapse(ID, NOW)
    made.unwritten.take()
    made.open(replace(lapsed, revision=2), NOW)
    assert summary(made) == []


def test_cancelled_request_has_an_end_entry() -> None:
    made = book()
    made.cancel(ID, "guest", "enough", NOW)
    assert summary(made) == [("ending", "cancelled", "guest")]


def test_entries_contain_no_arguments_and_truncate_long_text() -> None:
    made = book(edit="approve")
    made.examine(answer(edited_args={"to": "Lisbon"}), Authority(allowed=False, code="not_allowed"), NOW)
    made.precheck(answer(approval_id="x" * 60_000, subject="y" * 60_000, delivery_id="z" * 60_000), NOW)
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


def test_stored_answer_is_not_signed_again() -> None:
    for received, signature in ((NOW, ""), (None, "c2ln")):
        made = book()
        made.settle(answer(signature="c2ln", key_id="k"), replace(ANA, received_at=received), NOW)
        attempt = made.unwritten.take()[0]
        assert (attempt.kind, attempt.data.get("signature", "")) == ("attempt", signature)


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
