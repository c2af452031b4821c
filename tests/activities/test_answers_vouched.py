import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from activity_kit import decision, environment, worker_deps
from some import some
from turn_fixtures import Ledger, pay_tool

from signoff.activities.answers_activity import AnswersActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import AnswersTask, Authority
from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.authority import check_authority as rule
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.store.store import Store, open_store
from signoff.store.vouched_people import VouchedPeople, vouched_writer
from signoff.testing.builders import a_person, a_request

NOW = datetime.now(UTC)
WEEK = timedelta(days=7)
SIGNER = Signer(PrivateKeys(keys=(new_key(NOW - 2 * WEEK),)))
FOREIGN = Signer(PrivateKeys(keys=(new_key(NOW - 2 * WEEK),)))
LOGIN = "https://login.example.com#7"
CY = a_person(id_from_login(LOGIN), name="Cy", identities={"oidc": (LOGIN,)})


def deps_with(store: Store, *people: Person) -> WorkerDeps:
    plain = worker_deps(store, pay_tool(Ledger()), people=people, profile="production")
    return dataclasses.replace(plain, verifier=SIGNER.verifier())


async def signed_in(store: Store, person: Person = CY, *, signer: Signer = SIGNER, at: datetime = NOW) -> None:
    await store.run(vouched_writer(vouch(signer, person, names=(), now=at, lifetime=WEEK)))


REQUEST = a_request(approvers=("role:approvers",), min_assurance="session")


def answer_of(subject: str) -> Decision:
    return SIGNER.sign_decision(decision(subject=subject, channel="inbox", assurance="session", received_at=NOW))


async def authority(deps: WorkerDeps, subject: str = CY.id) -> Authority:
    people = await deps.directory_for("main", subject, "guest")
    return rule(REQUEST, answer_of(subject), NOW, people, unsigned=False, development=False)


async def test_signed_in_person_may_decide_by_their_roles(store: Store) -> None:
    await signed_in(store)
    found = await authority(deps_with(store))
    assert (found.allowed, found.subject, found.name) == (True, CY.id, "Cy")


async def test_role_removed_at_the_last_sign_in_ends_immediately(store: Store) -> None:
    worker = deps_with(store)
    await signed_in(store)
    assert (await authority(worker)).allowed
    await signed_in(store, replace(CY, roles=()), at=NOW + timedelta(seconds=1))
    assert (await authority(worker)).code == "not_allowed"


async def test_person_without_a_recent_sign_in_is_unknown(store: Store) -> None:
    worker = deps_with(store)
    assert (await authority(worker)).code == "not_allowed"
    await signed_in(store, at=NOW - WEEK)
    assert (await authority(worker)).code == "not_allowed"
    await signed_in(store)
    await VouchedPeople(store).end("main", CY.id, by="ada", now=NOW)
    assert (await authority(worker)).code == "not_allowed"


async def test_sign_in_row_without_a_valid_signature_creates_no_person(store: Store) -> None:
    await signed_in(store, signer=FOREIGN)
    assert (await authority(deps_with(store))).code == "not_allowed"
    await signed_in(store, a_person("ana", identities={"oidc": (LOGIN,)}))
    assert (await authority(deps_with(store), "ana")).code == "not_allowed"


async def test_declared_person_overrides_a_sign_in(store: Store) -> None:
    await signed_in(store)
    assert (await authority(deps_with(store, replace(CY, active=False)))).code == "not_allowed"
    assert (await authority(deps_with(store, Person(id="cy", identities={"oidc": (LOGIN,)})))).code == "not_allowed"


async def test_unavailable_store_is_not_treated_as_an_unknown_person(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as store:
        worker = deps_with(store, a_person("ana"))
    raw = answer_of(CY.id)
    task = AnswersTask(approval=raw.approval_id, raw=raw)
    reply = await environment().run(AnswersActivity(worker).read_answers, task)
    assert some(reply.receipt).code == "unavailable"
    assert (await worker.directory_for("main", "ana", "")) is worker.people
    with pytest.raises(StoreUnavailable):
        await worker.directory_for("main", "ana", CY.id)
