from typing import Any

from tables import table

from signoff.languages.catalogue import ENGLISH, language_codes
from signoff.texts.record_entries import _KINDS, entry_words

OTHERS = sorted(set(language_codes()) - {ENGLISH})
CALL = {"tool": "pay", "call": "c1.1"}
ENTRIES: list[tuple[str, dict[str, Any], str]] = [
    ("trace", CALL | {"line": "tool `pay`: pay (registry)"}, "pay c1.1 was resolved: tool `pay`: pay (registry)"),
    ("turn", {"actor": "desk", "channel": "api"}, "asked desk over api"),
    ("turn", {}, "asked for a turn over an unknown channel"),
    ("turn", {"session_event": 1, "id": "t7", "code": "lost"}, "turn t7 of the session no longer exists: lost"),
    ("turn", {"stop": "c1.1"}, "requested a stop: c1.1"),
    ("turn", {"moved": "pay", "route": "checkout"}, "moved to the step pay of checkout"),
    ("turn", {"ended": "complete"}, "ended complete"),
    ("turn", {"ended": "error", "error": "limit"}, "ended error, limit"),
    (
        "request",
        CALL | {"approvers": ["role:a"], "code": "K7Q", "rule": {"name": "r"}, "policy_hash": "0123456789"},
        "pay c1.1 needs approval (rule r of policy 01234567): request K7Q to role:a",
    ),
    (
        "request",
        {"approvers": ["a", "b"], "quorum": 2},
        "a tool needs 2 approvals (no rule): request ? to a, b",
    ),
    (
        "revision",
        CALL | {"revision": 2, "edited_by": "bo", "changed": ["to"]},
        "revision 2 of the request for pay c1.1: changed to",
    ),
    (
        "revision",
        CALL | {"revision": 2, "edited_by": "bo"},
        "revision 2 of the request for pay c1.1: changed masked values",
    ),
    ("revision", CALL | {"revision": 2}, "revision 2 of the request for pay c1.1: asked again"),
    (
        "revision",
        CALL | {"revision": 2, "notes": [{"code": "tool_changed"}]},
        "revision 2 of the request for pay c1.1: the tool changed while the request was waiting",
    ),
    (
        "attempt",
        {
            "verdict": "approved",
            "channel": "api",
            "assurance": "session",
            "unsigned": False,
            "key_id": "k1",
            "status": "accepted",
        },
        "answered approved (over api, session, signed by key k1): accepted",
    ),
    (
        "attempt",
        {"verdict": "denied", "on_behalf": "ana", "status": "refused", "receipt": "stale"},
        "answered denied for ana (over ?, no known person, unsigned): refused (stale)",
    ),
    (
        "attempt",
        {"reporter": "channel", "status": "counted"},
        "answered something unreadable (over ?, no known person, as the channel knows them): counted",
    ),
    (
        "attempt",
        {"session_event": "message", "id": "m1", "status": "refused", "code": "lost"},
        "sent the session a message m1: refused (lost)",
    ),
    (
        "attempt",
        {"session_event": "message", "status": "refused", "more": 3},
        "sent the session a message: refused, and 3 more",
    ),
    ("auto", CALL | {"rule": {"name": "r"}}, "pay c1.1 may run without approval, by rule r"),
    ("grant", CALL | {"grant": "g1"}, "pay c1.1 may run without approval, by grant g1"),
    (
        "verdict",
        CALL | {"code": "denied_policy", "gate": "policy", "rule": {"name": "r"}},
        "pay c1.1 is denied policy at gate policy (rule r)",
    ),
    ("execution", CALL | {"refused": "late"}, "pay c1.1 was not run: late"),
    ("execution", CALL | {"permit": "approved", "decisions": [{"subject": "bo"}]}, "pay c1.1 begins, approved by bo"),
    (
        "execution",
        CALL | {"permit": "auto", "rule": {"name": "r"}, "private": True},
        "pay c1.1 begins, auto by rule r, as a private event",
    ),
    ("outcome", CALL | {"code": "ok", "duration_ms": 12}, "pay c1.1 ends ok after 12 ms"),
    (
        "outcome",
        CALL | {"code": "ok", "duration_ms": 12, "bypass_reason": "reads only", "justification": "of the desk"},
        "pay c1.1 ends ok after 12 ms, not routed: reads only, tool of one agent alone: of the desk",
    ),
    ("proposal", CALL | {"actor": "desk"}, "pay c1.1 is proposed"),
    ("in_doubt", CALL, "the outcome of pay c1.1 is unknown"),
    ("in_doubt", CALL | {"approvers": ["role:a"]}, "the outcome of pay c1.1 is unknown: request to role:a"),
    ("ending", CALL | {"state": "timed_out"}, "the request for pay c1.1 is timed out"),
    ("message", {}, "asked the agent about the request"),
    ("message", {"by": "agent"}, "the agent answered an approver"),
    (
        "delivery",
        {"event": "sent", "approval": "x", "person": "bo", "channel": "mail"},
        "sent x: the card of bo on mail",
    ),
    (
        "delivery",
        {"event": "sent", "approval": "x", "room": "C1", "channel": "chat"},
        "sent x: the card of C1 on chat",
    ),
    ("retired", {"records": 7, "key_id": "k1"}, "7 records were retired, signed by key k1"),
    (
        "policy",
        {"act": "policies", "where": "w", "count": 2, "after": "0123456789", "added": ["pay"], "removed": ["a"]},
        "policies at w: 2 by hash 01234567 (added pay; removed a)",
    ),
    ("people", {"act": "people", "where": "w", "count": 2, "after": "0123456789"}, "people at w: 2 by hash 01234567"),
]
PLAIN = [
    ("admin", {"act": "freeze", "reason": "drill"}, "freeze: drill"),
    ("attempt", {"act": "refused to an agent", "code": "scope"}, "refused to an agent (code scope)"),
    ("admin", {}, "did something"),
    ("strange", {}, "strange"),
]


@table(("kind", "facts", "words"), *ENTRIES, *PLAIN)
def test_entry_is_a_sentence_in_english(kind: str, facts: dict[str, Any], words: str) -> None:
    assert entry_words(kind, facts, ENGLISH) == words


@table("language", *OTHERS)
def test_no_entry_stays_in_english(language: str) -> None:
    assert {kind for kind, _, _ in (*ENTRIES, *PLAIN)} == set(_KINDS) | {"strange"}
    english = {"asked", "needs", "answered", "begins", "ends", "happened", "accepted", "refused", "counted", "approved"}
    for kind, facts, words in ENTRIES:
        text = entry_words(kind, facts, language)
        assert text != words
        assert not english & set(text.replace(":", " ").replace(",", " ").split()), text
        assert str(facts.get("call", "")) in text


def test_codes_use_the_texts_of_the_pages() -> None:
    facts = {"verdict": "approved", "channel": "api", "assurance": "mfa", "status": "counted"}
    text = entry_words("attempt", facts, "de")
    assert text == "hat geantwortet: Genehmigt (über api, mit zweitem Faktor, ohne Unterschrift): gezählt"
