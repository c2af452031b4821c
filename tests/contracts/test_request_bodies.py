from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from tables import table

from signoff.contracts import requests
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.person import Person
from signoff.contracts.requests import (
    PROBLEMS_SHOWN,
    BatchBody,
    DecisionAuthor,
    DecisionDraft,
    RequestBody,
    SayBody,
    TurnBody,
    decision_from_draft,
)

ANA = Person(id="ana", name="Ana")
NOW = datetime(2026, 11, 24, 8, tzinfo=UTC)
FULL: dict[str, Any] = {
    "approval_id": "main.s.t.c1.1",
    "verdict": "approved",
    "reason": "agreed",
    "revision": 2,
    "question_hash": "a" * 64,
    "edited_args": {"amount": 5},
    "answer": ["no"],
    "result": "done",
    "remember": {"uses": 3},
    "confirm": "5",
    "seen": "b" * 64,
    "thread": "c" * 64,
    "passkey": {"credential": "c", "nonce": "n", "authenticator_data": "a", "client_data": "d", "signature": "s"},
    "delivery_id": "k1",
}


BODIES = [
    each
    for each in vars(requests).values()
    if isinstance(each, type) and issubclass(each, BaseModel) and each.__module__ == requests.__name__
]


def test_every_draft_field_is_carried_into_the_decision() -> None:
    assert set(FULL) == set(DecisionDraft.model_fields)
    decision = decision_from_draft(DecisionDraft(**FULL), DecisionAuthor(ANA, "inbox", "session"), NOW)
    assert decision == Decision(
        approval_id="main.s.t.c1.1",
        verdict="approved",
        reason="agreed",
        revision=2,
        question_hash="a" * 64,
        thread="c" * 64,
        edited_args={"amount": 5},
        answer=["no"],
        result="done",
        remember=GrantRequest(uses=3),
        subject="ana",
        channel="inbox",
        assurance="session",
        delivery_id="inbox:ana:k1",
        received_at=NOW,
    )
    set_by_the_gateway = {"v", "subject", "channel", "assurance", "received_at", "presence", "key_id", "signature"}
    set_by_the_gateway |= {"to", "to_name", "assigned", "on_call"}
    assert set(Decision.model_fields) - set(DecisionDraft.model_fields) == set_by_the_gateway


def test_decision_counts_from_its_time_of_receipt() -> None:
    draft, earlier = DecisionDraft(verdict="denied", delivery_id="k1"), NOW - timedelta(hours=1)
    by_mail = decision_from_draft(draft, DecisionAuthor(ANA, "email", "channel", earlier), NOW)
    other = decision_from_draft(draft, DecisionAuthor(Person(id="bo"), "email", "channel"), NOW)
    assert (by_mail.received_at, other.received_at) == (earlier, NOW)
    assert by_mail.delivery_id != other.delivery_id


@table(
    ("change", "named"),
    ({"edited_arg": {"amount": 5}}, "edited_arg"),
    ({"subject": "bo"}, "subject"),
    ({"as": "bo"}, "as"),
    ({"signature": "x"}, "signature"),
    ({"verdict": "withdrawn"}, "verdict"),
    ({"verdict": None}, "verdict"),
    ({"revision": 0}, "revision"),
    ({"revision": "two"}, "revision"),
    ({"question_hash": "a" * 65}, "question_hash"),
    ({"reason": "x" * 2_001}, "reason"),
    ({"delivery_id": "k\n1"}, "delivery_id"),
    ({"delivery_id": "k" * 201}, "delivery_id"),
    ({"remember": {"use": 1}}, "`use` is not known here"),
    ({"remember": {"scope": "everywhere"}}, "scope"),
    ({"edited_args": [5]}, "edited_args"),
)
def test_ambiguous_draft_is_rejected(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        DecisionDraft.model_validate(FULL | change)


def test_thousands_of_unknown_fields_give_few_errors() -> None:
    many = {f"field{number}": number for number in range(100_000)} | {"roles": ["admin"]}
    with pytest.raises(ValidationError) as caught:
        DecisionDraft.model_validate(FULL | many)
    names = [error["loc"][0] for error in caught.value.errors()]
    assert len(names) == PROBLEMS_SHOWN + 1
    assert "roles" in names


@table("body", *BODIES)
def test_request_bodies_reject_unknown_fields(body: type[BaseModel]) -> None:
    assert issubclass(body, RequestBody)
    with pytest.raises(ValidationError, match="nobody_knows"):
        body.model_validate({"nobody_knows": 1})


@table("words", "", "  ", "half \ud800 of a pair")
def test_empty_or_unencodable_text_is_rejected(words: str) -> None:
    for body in (SayBody, TurnBody):
        with pytest.raises(ValidationError):
            body.model_validate({"text": words})


def test_batch_size_is_limited() -> None:
    for decisions in ([], [FULL] * 101):
        with pytest.raises(ValidationError, match="decisions"):
            BatchBody.model_validate({"decisions": decisions})
