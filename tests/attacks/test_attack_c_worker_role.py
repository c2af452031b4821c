"""The permitted writes of a worker's database role run nothing except calls approved as shown.

Voiding an unfinished ticket is within the role: that holds back a call, or repeats an approved one.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from attack_site import MANIFEST, AttackSite, approval_id, payee
from impostor import Impostor, impostor_of
from store_roles import RoleUrls
from temporalio.client import WorkflowUpdateFailedError

from signoff.approvals.digest import question_hash
from signoff.contracts.approval import Question
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.store.roles import WORKER_KEYS

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

FORBIDDEN = (
    "INSERT INTO answers (approval, number, revision, person_id, delivery, body, settles, answered_at) "
    "VALUES ('a', 1, 1, 'ana', 'd', '{}', true, 0)",
    "UPDATE answers SET body = '{}'",
    "UPDATE answers SET handed_at = NULL",
    "DELETE FROM answers",
    "INSERT INTO freezes (tenant, reason, frozen_by, frozen_at) VALUES ('other', '', '', 0)",
    "UPDATE freezes SET tenant = 'other'",
    "DELETE FROM freezes",
    "INSERT INTO people (tenant, person, body, seen_at, until) VALUES ('main', 'me', '{}', 0, 9)",
    "UPDATE people SET until = 9",
    "INSERT INTO tokens (id, digest, tenant, person, scopes, created_at, expires_at) "
    "VALUES ('mine', 'd', 'main', 'ana', 'decide', 0, 9)",
    "UPDATE tokens SET revoked_at = NULL",
    "SELECT digest FROM tokens",
    "INSERT INTO sessions (digest, tenant, person, assurance, scopes, token, created_at, expires_at) "
    "VALUES ('mine', 'main', 'ana', 'mfa', 'decide', '', 0, 9)",
    "SELECT digest FROM sessions",
    "SELECT token FROM deliveries",
    "UPDATE deliveries SET address = 'mine'",
    "INSERT INTO arrivals (key, channel, kind, body, claimed_until, attempts, state, received_at, due_at, speaker) "
    "VALUES ('k', 'c', 'event', '{}', 0, 0, 'new', 0, 0, '')",
    "SELECT body FROM arrivals",
    "SELECT digest FROM footers",
    "INSERT INTO grants (id, tenant, session, tool, definition, exact, predicate, rule, policy_hash, verdict, people, "
    "reason, approval_id, created_at, expires_at, uses, requester, actor) VALUES ('mine', 'main', '', 'pay', '', '', "
    "'true', '', '', 'approved', 'ana', '', '', 0, 9, 9, 'rui', '')",
    "UPDATE grants SET expires_at = 9",
    "UPDATE grants SET revoked_at = NULL",
    "UPDATE grants SET predicate = 'true'",
    "UPDATE grants SET uses = 9",
    "DELETE FROM grants",
    "DELETE FROM grant_uses",
    "INSERT INTO keys (name, secret, created_at) VALUES ('mine', '', 0)",
    "UPDATE keys SET secret = ''",
    "DELETE FROM keys",
    "UPDATE questions SET body = '{}'",
    "UPDATE questions SET last_at = 9",
    "DELETE FROM questions",
    "UPDATE blobs SET body = ''",
    "DELETE FROM blobs",
    "DELETE FROM tickets",
    "UPDATE tickets SET key = 'mine' WHERE false",
    "UPDATE audit_records SET data = '{}'",
    "DELETE FROM audit_records",
    "UPDATE audit_heads SET covered = 9",
    "UPDATE audit_heads SET numbered = 9",
    "INSERT INTO event_heads (tenant, number) VALUES ('mine', 9)",
    "UPDATE event_heads SET number = 9",
    "SELECT body FROM events",
    "INSERT INTO events (tenant, number, stream, call, actor, private, body, numbered_at) "
    "VALUES ('main', 9000, 'turn/main/s/t', '', '', false, '{}', 0)",
    "DELETE FROM events",
    "DELETE FROM audit_heads",
    "INSERT INTO audit_records (stream, seq, key, kind, at, tenant, subject, data, prev, hash, written_at) "
    "VALUES ('admin/main', 1000, 'k', 'admin', '', 'main', 'ana', '{}', '', '', 0)",
    "INSERT INTO audit_checkpoints (number, body, hash, key_id, signature) VALUES (9, '', '', '', '')",
    "DELETE FROM audit_checkpoints",
)
"""Statements that PostgreSQL must refuse the worker's role, although an owner may run them."""


@pytest.fixture(scope="module")
async def insider(site_of_roles: AttackSite) -> AsyncIterator[Impostor]:
    async with impostor_of(site_of_roles.client, site_of_roles.queue, MANIFEST, site_of_roles.stores.gateway) as found:
        yield found


@pytest.fixture(scope="module")
async def taken(role_urls: RoleUrls) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(role_urls.worker)
    yield connection
    await connection.close()


@pytest.fixture(scope="module")
async def owner(role_urls: RoleUrls) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(role_urls.owner)
    yield connection
    await connection.close()


@pytest.mark.parametrize("statement", FORBIDDEN)
async def test_database_refuses_the_worker_the_gateways_statements(taken: asyncpg.Connection, statement: str) -> None:
    # Answers, terms of grants, freezes, people, sign-ins, questions, and the audit log are outside this role. With all
    # rights on every table granted in `store/roles.py`, and no row conditions, each statement passed.
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await taken.execute(statement)


@pytest.mark.parametrize("statement", FORBIDDEN)
async def test_owner_may_run_every_forbidden_statement(owner: asyncpg.Connection, statement: str) -> None:
    # Each statement has an effect: none is refused with the owner's credential. With the worker's credential instead
    # each was refused.
    change = owner.transaction()
    await change.start()
    try:
        done = await owner.execute(statement)
    finally:
        await change.rollback()
    assert done.split()[0] == statement.split()[0]


async def test_worker_role_reads_three_keys_and_moves_no_chain(
    site_of_roles: AttackSite, taken: asyncpg.Connection
) -> None:
    # The keys of approval links and forms exist, but not for this role, and neither does the head of the checkpoints.
    # Without the row conditions in `store/roles.py` the key of forms was readable.
    await site_of_roles.browser("bo")
    assert {row["name"] for row in await taken.fetch("SELECT name FROM keys")} == set(WORKER_KEYS)
    assert await taken.execute("UPDATE audit_heads SET hash = 'mine' WHERE stream = 'checkpoints'") == "UPDATE 0"


async def test_worker_role_cannot_reopen_a_done_ticket(
    site_of_roles: AttackSite, insider: Impostor, taken: asyncpg.Connection
) -> None:
    # An approved payment that was made cannot be repeated: its ticket takes no other state. Without a row condition on
    # tickets it paid twice.
    to, rui, ana = payee(), site_of_roles.person("rui"), site_of_roles.person("ana")
    args = {"amount": 7, "to": to}
    key = await rui.ask([("pay", args)])
    await ana.approve(approval_id(key))
    await rui.result(key)
    gone = "UPDATE tickets SET state = 'void', workflow = 'other', finished_at = NULL WHERE workflow = $1"
    changed = await taken.execute(gone, key.workflow_id)
    ctx, given = await insider.ctx(key), await insider.decisions(key)
    forged = await insider.stand(key)
    await forged.run("pay", args, insider.claim(ctx, insider.digest(ctx, "pay", args), given))
    assert (changed, site_of_roles.amounts(to)) == ("UPDATE 0", [7])


async def asked(site: AttackSite, args: dict[str, Any], taken: asyncpg.Connection) -> tuple[TurnKey, Question, Any]:
    key = await site.person("rui").ask([("pay", args)])
    await site.person("ana").waiting(approval_id(key))
    row = await taken.fetchrow("SELECT * FROM questions WHERE approval = $1", approval_id(key))
    return key, Question.model_validate_json(row["body"]), row


async def test_worker_role_cannot_reopen_an_ended_question(
    site_of_roles: AttackSite, taken: asyncpg.Connection
) -> None:
    # A worker may end a question, because then its call does not run, but cannot reopen it. Without a row condition on
    # questions it was asked again.
    key, _, _ = await asked(site_of_roles, {"amount": 7, "to": payee()}, taken)
    ana, change = site_of_roles.person("ana"), "UPDATE questions SET ended_at = $2, ended_as = $3 WHERE approval = $1"
    given = (await ana.see(approval_id(key))).view["state"]
    done = await taken.execute(change, approval_id(key), 1, "cancelled")
    undone = await taken.execute(change, approval_id(key), None, None)
    left = (await ana.see(approval_id(key))).view["state"]
    assert (given, done, undone, left) == ("pending", "UPDATE 1", "UPDATE 0", "cancelled")


async def ask_instead(taken: asyncpg.Connection, row: Any, question: Question) -> None:
    """The forged question is the latest of its approval."""
    await taken.execute(
        "INSERT INTO questions (approval, revision, tenant, session, turn, code, body, opened_at, last_at) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        question.id,
        question.revision,
        row["tenant"],
        row["session"],
        row["turn"],
        row["code"],
        question.model_dump_json(exclude={"ended_at", "ended_as"}),
        row["opened_at"],
        row["last_at"],
    )


async def test_forged_question_with_other_approvers_runs_nothing(
    site_of_roles: AttackSite, insider: Impostor, taken: asyncpg.Connection
) -> None:
    # The worker's role writes a question that names Max. He may approve nothing, but he approves it. An honest worker
    # also applies the current policy and pays nothing. With the current policy's table omitted in `voter_set` 9,400
    # EUR was paid.
    to = payee()
    args = {"amount": 9_400, "to": to}
    key, question, row = await asked(site_of_roles, args, taken)
    false = replace(question, revision=2, approvers=("user:max",), quorum=1)
    await ask_instead(taken, row, false)
    ctx, view = await insider.ctx(key), await insider.view(key)
    forged = await insider.take_over(key, state=view)
    max_ = site_of_roles.person("max")
    answer = await max_.decide(await max_.waiting(approval_id(key)))
    assert answer.json()["status"] == "accepted", answer.text
    given = await forged.decisions()
    assert [each.question_hash for each in given] == [question_hash(false)]
    for revision in (1, 2):
        claim = insider.claim(ctx, insider.digest(ctx, "pay", args), given, revision=revision)
        reply = await forged.run("pay", args, claim)
        assert reply.outcome is None or reply.outcome.code != "ok"
    assert site_of_roles.amounts(to) == []


async def test_forged_question_with_other_arguments_is_not_shown(
    site_of_roles: AttackSite, insider: Impostor, taken: asyncpg.Connection
) -> None:
    # A question that shows 9 EUR over the digest of 9,400 EUR is shown to no approver, and no approval is signed.
    # Without the comparison of digests in `RequestReader._prove` it was shown and signed.
    to = payee()
    args = {"amount": 9_400, "to": to}
    key, question, row = await asked(site_of_roles, args, taken)
    small = Content(inline={"amount": 9, "to": to})
    false = replace(question, revision=2, args=small)
    await ask_instead(taken, row, false)
    ana = site_of_roles.person("ana")
    shown = await ana.see(approval_id(key))
    yes = {"verdict": "approved", "revision": 2, "question_hash": question_hash(false)}
    answer = await ana.http.post(f"/v1/approvals/{approval_id(key)}/decide", json=yes)
    assert await insider.decisions(key) == []
    assert (shown.status, answer.status_code) == (404, 404), (shown.words, answer.text)
    assert site_of_roles.amounts(to) == []


async def test_approval_of_a_forged_question_runs_only_its_own_arguments(
    site_of_roles: AttackSite, insider: Impostor, taken: asyncpg.Connection
) -> None:
    # A forged question asks for 9 EUR, and Ana approves: the turn's own 9,400 EUR is not paid. Without the comparison
    # of the question's digest with the call's in `standing` 9,400 EUR was paid.
    to = payee()
    large, small = {"amount": 9_400, "to": to}, {"amount": 9, "to": to}
    key, question, row = await asked(site_of_roles, large, taken)
    ctx, view = await insider.ctx(key), await insider.view(key)
    await ask_instead(
        taken,
        row,
        replace(
            question,
            revision=2,
            args=Content(inline=small),
            digest=insider.digest(ctx, "pay", small),
            agent_says="A small one.",
        ),
    )
    forged = await insider.take_over(key, state=view)
    ana = site_of_roles.person("ana")
    shown = await ana.waiting(approval_id(key))
    assert (f"Pay 9 EUR to {to}" in shown.words, "9,400" in shown.words) == (True, False)
    assert (await ana.decide(shown)).json()["status"] == "accepted"
    given = await forged.decisions()
    for revision in (1, 2):
        for args in (large, small):
            claim = insider.claim(ctx, insider.digest(ctx, "pay", args), given, revision=revision)
            await forged.run("pay", large, claim)
    assert 9_400 not in site_of_roles.amounts(to)


@pytest.mark.parametrize("state", ["claimed", "done", "void"])
async def test_forged_ticket_holds_a_call_back(
    site_of_roles: AttackSite, insider: Impostor, taken: asyncpg.Connection, state: str
) -> None:
    # Ana approves 7 EUR, and a ticket exists that no honest worker claimed: neither that nor 9,400 EUR is paid. With
    # every claim answered as fresh in `Store.claim`, and no check of other actions of the call, 7 EUR was paid in each
    # state.
    to = payee()
    args, large = {"amount": 7, "to": to}, {"amount": 9_400, "to": to}
    key, question, _ = await asked(site_of_roles, args, taken)
    ctx, view = await insider.ctx(key), await insider.view(key)
    forged = await insider.take_over(key, state=view)
    await site_of_roles.person("ana").approve(approval_id(key))
    outcome = json.dumps({"call": "c1.1", "tool": "pay", "code": "ok"}) if state == "done" else None
    for digest in (question.digest, insider.digest(ctx, "pay", large)):
        await taken.execute(
            "INSERT INTO tickets (key, workflow, call, tool, owner, state, outcome, claimed_at, nonce) "
            "VALUES ($1, $2, 'c1.1', 'pay', '', $3, $4, 0, $5)",
            *(digest, key.workflow_id, state, outcome, ctx.user.nonce),
        )
    given = await forged.decisions()
    assert [each.verdict for each in given] == ["approved"]
    for each in (args, large):
        # For a ticket held elsewhere, the honest worker does not know the outcome and tries again.
        with contextlib.suppress(WorkflowUpdateFailedError):
            await forged.run("pay", each, insider.claim(ctx, insider.digest(ctx, "pay", each), given))
    assert site_of_roles.amounts(to) == []
