"""Signatures where the effect happens: nothing runs on a permit that the gateway's key does not bear out."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import ARGS, MARK_KEY, TURN, decision, environment, permit_for, pinned, run, task_for
from desk_fixtures import GUEST, Ledger, catalog_of, pay_tool
from signed_askers import signed_asker

from signoff.activities.gate import GateActivity, digest_of
from signoff.activities.permit import Witness, believed, given_up, seating
from signoff.activities.room import Profile, Room
from signoff.approvals.digest import doubt_digest
from signoff.contracts.call import Permit
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person, Principal
from signoff.contracts.steps import GateReply, GateTask, ToolReply
from signoff.policy.model import ApprovalPolicy
from signoff.registry.gates import Judgement
from signoff.registry.people import FixedDirectory
from signoff.registry.tool import Tool
from signoff.signing import PrivateKeys, Signer, Verifier, new_key
from signoff.store.store import Store

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD, NEW = new_key(NOW - timedelta(days=90)), new_key(NOW - timedelta(days=1))
SIGNER = Signer(PrivateKeys(keys=(NEW,)))
STRANGER = Signer(PrivateKeys(keys=(OLD,)))
PEOPLE = (
    Person(id="guest", name="Guest"),
    Person(id="approver", roles=("approvers",)),
    Person(id="ana", roles=("approvers",)),
)


def asks(user: Principal = GUEST, *, signer: Signer = SIGNER, turn: TurnKey = TURN) -> Principal:
    """Who asks, as the gateway vouches for it."""
    return signed_asker(signer, user, *turn, at=NOW)


def signed(signer: Signer = SIGNER, **fields: Any) -> Decision:
    """A decision of the approver on the one call, as the gateway vouches for it."""
    given = {"received_at": NOW, "assurance": "session", "digest": permit_for(pay_tool(Ledger())).digest} | fields
    return signer.sign_decision(decision(**given))


def room_with(store: Store, tool: Tool, *, profile: Profile = "production", verifier: Verifier | None = None) -> Room:
    """The room of a worker that has public keys and nothing else."""
    return Room(
        catalog=catalog_of([tool]),
        store=store,
        people=FixedDirectory(PEOPLE),
        drivers={},
        mark_key=MARK_KEY,
        profile=profile,
        verifier=verifier or SIGNER.verifier(),
        clock=lambda: NOW,
    )


class Desk:
    """One gated tool behind one worker."""

    def __init__(self, store: Store, requires_approval: Any = True, **fields: Any) -> None:
        self.ledger = Ledger()
        self.tool = pay_tool(self.ledger, requires_approval)
        self.room = room_with(store, self.tool, **fields)

    def permit(self, *decisions: Decision, **fields: Any) -> Permit:
        """An approved permit with these decisions, asked by a signed guest under the present policy."""
        given = {
            "kind": "approved",
            "ctx": pinned(user=asks()),
            "policy_hash": self.room.catalog.policy("pay").hash,
            "decisions": decisions,
        }
        return permit_for(self.tool, **given | fields)

    async def run(self, permit: Permit, **fields: Any) -> ToolReply:
        """What the tool's activity answers."""
        return await run(self.room, self.tool, task_for(self.tool, permit, **fields))

    async def refused(self, permit: Permit, **fields: Any) -> str:
        """Why the tool's activity refuses; nothing has run."""
        reply = await self.run(permit, **fields)
        assert self.ledger.rows == []
        assert reply.outcome is not None
        assert reply.outcome.code == "refused", reply
        return str(reply.outcome.value.inline)


async def test_a_signed_permit_runs_by_public_keys_alone(store: Store) -> None:
    """A worker that has no private key runs what the gateway signed."""
    desk = Desk(store)
    reply = await desk.run(desk.permit(signed()))
    assert reply.outcome is not None
    assert reply.outcome.code == "ok"
    assert len(desk.ledger.rows) == 1


@pytest.mark.parametrize("profile", ["development", "production"])
@pytest.mark.parametrize(
    "change",
    [
        {"reason": "altered"},
        {"subject": "ana"},
        {"assurance": "mfa"},
        {"received_at": NOW - timedelta(days=1)},
        {"channel": "slack"},
        {"signature": ""},
        {"key_id": ""},
        {"key_id": OLD.id},
    ],
)
async def test_an_altered_reason_or_author_is_refused(store: Store, profile: Profile, change: Any) -> None:
    """Whatever was changed after the gateway signed, also in development, where unsigned ones are taken."""
    desk = Desk(store, profile=profile)
    altered = signed().model_copy(update=change)
    assert "not what the gateway signed" in await desk.refused(desk.permit(altered))


async def test_a_decision_copied_from_another_call_is_refused(store: Store) -> None:
    """Signed for another call, turn or approval, it approves nothing here; its id cannot be changed either."""
    desk = Desk(store)
    for approval_id in ("main.s.t.c1.2", "main.s.other.c1.1", "other.s.t.c1.1"):
        copied = signed(approval_id=approval_id)
        assert "about something else" in await desk.refused(desk.permit(copied))
        relabelled = copied.model_copy(update={"approval_id": decision().approval_id})
        assert "not what the gateway signed" in await desk.refused(desk.permit(relabelled))


async def test_a_decision_replayed_to_another_revision_or_digest_is_refused(store: Store) -> None:
    """It is an answer to what the person saw: these arguments, in this revision."""
    desk = Desk(store)
    assert "about other arguments" in await desk.refused(desk.permit(signed(revision=2)))
    assert "about other arguments" in await desk.refused(desk.permit(signed(), revision=2))
    assert "about other arguments" in await desk.refused(desk.permit(signed(digest="0" * 64)))
    other = {"amount": 2_000_000, "to": "Eve"}
    ctx = pinned(user=asks())
    swapped = desk.permit(signed(), digest=digest_of(ctx, "c1.1", desk.tool, other))
    assert "about other arguments" in await desk.refused(swapped, args=other)


async def test_a_signed_decision_that_names_nothing_is_refused(store: Store) -> None:
    """What fits any arguments proves no consent to these."""
    desk = Desk(store)
    for vague in (signed(digest=""), signed(revision=None)):
        assert "does not say what it is about" in await desk.refused(desk.permit(vague))


async def test_a_decision_by_the_wrong_key_is_refused(store: Store) -> None:
    """Somebody else's key, also under the name of ours; without any keys nothing is believed."""
    desk = Desk(store)
    foreign = signed(STRANGER)
    for forged in (foreign, foreign.model_copy(update={"key_id": NEW.id})):
        assert "not what the gateway signed" in await desk.refused(desk.permit(forged))
    bare = Desk(store, verifier=Verifier(), profile="development")
    permit = bare.permit(signed(), ctx=pinned())
    assert "not what the gateway signed" in await bare.refused(permit)


async def test_a_retired_key_counts_for_what_was_received_before(store: Store) -> None:
    """A call approved before the rotation runs after it; a new decision by the retired key does not."""
    keys = PrivateKeys(keys=(OLD.model_copy(update={"retired_at": NOW}), NEW))
    desk = Desk(store, verifier=Signer(keys).verifier())
    late = signed(STRANGER)
    assert "not what the gateway signed" in await desk.refused(desk.permit(late))
    before = signed(STRANGER, received_at=NOW - timedelta(seconds=1))
    reply = await desk.run(desk.permit(before))
    assert reply.outcome is not None
    assert reply.outcome.code == "ok"


async def test_a_quorum_across_a_rotation(store: Store) -> None:
    """While both keys are in use, one person's answer by the old and another's by the new one make two."""
    keys = PrivateKeys(keys=(OLD, NEW))
    desk = Desk(store, ApprovalPolicy(quorum=2), verifier=Signer(keys).verifier())
    pair = (signed(STRANGER), signed(subject="ana"))
    assert "too few people" in await desk.refused(desk.permit(pair[0], signed(), quorum=2))
    reply = await desk.run(desk.permit(*pair, quorum=2))
    assert reply.outcome is not None
    assert reply.outcome.code == "ok"


@pytest.mark.parametrize(
    ("profile", "policy", "runs"),
    [
        ("development", ApprovalPolicy(), True),
        ("production", ApprovalPolicy(), False),
        ("production", ApprovalPolicy(accept_unsigned=True), True),
    ],
)
async def test_unsigned_decisions_need_the_profile_or_the_policy(
    store: Store, profile: Profile, policy: ApprovalPolicy, runs: bool
) -> None:
    """What nobody signed is taken in development, and where the policy says so."""
    desk = Desk(store, policy, profile=profile)
    permit = desk.permit(decision())
    if not runs:
        assert "is not signed" in await desk.refused(permit)
        return
    reply = await desk.run(permit)
    assert reply.outcome is not None
    assert reply.outcome.code == "ok"


FORGED = "who asked, or for what, is not what the gateway signed for"


@pytest.mark.parametrize("profile", ["development", "production"])
@pytest.mark.parametrize(
    "user",
    [
        asks().model_copy(update={"tier": "trusted"}),
        asks().model_copy(update={"user": "ana"}),
        asks().model_copy(update={"signature": ""}),
        asks().model_copy(update={"key_id": ""}),
        asks().model_copy(update={"issued_at": None}),
        asks(turn=TurnKey("main", "s", "other")),
        asks(turn=TurnKey("other", "s", "t")),
        asks(signer=STRANGER),
    ],
)
async def test_a_permit_with_an_edited_ctx_is_refused(store: Store, profile: Profile, user: Principal) -> None:
    """Another user, tier or turn than the gateway signed for, approved or automatic, in either profile."""
    desk = Desk(store, profile=profile)
    assert FORGED in await desk.refused(desk.permit(signed(), ctx=pinned(user=user)))
    free = Desk(store, False, profile=profile)
    assert FORGED in await free.refused(permit_for(free.tool, ctx=pinned(user=user)))


async def test_an_unsigned_requester_is_believed_in_development_only(store: Store) -> None:
    """The command line starts turns there without a gateway; it stays to be seen that nobody signed."""
    desk = Desk(store, False)
    assert "nobody vouches for who asked" in await desk.refused(permit_for(desk.tool))
    local = Desk(store, False, profile="development")
    reply = await local.run(permit_for(local.tool))
    assert reply.outcome is not None
    assert reply.outcome.code == "ok"


async def gated(room: Room, user: Principal) -> GateReply:
    """What the gates say of one call for `user`."""
    task = GateTask(ctx=pinned(user=user), calls=(CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS)),))
    return await environment("signoff.gate").run(GateActivity(room).gate, task)


async def test_the_gates_refuse_a_forged_requester(store: Store) -> None:
    """Nobody is even asked: the call is settled as refused, whatever the policy."""
    for policy in (True, False):
        room = Desk(store, policy).room
        for user in (GUEST, asks(signer=STRANGER)):
            [ruling] = (await gated(room, user)).rulings
            assert ruling.request is None
            assert ruling.outcome is not None
            assert (ruling.verdict, ruling.outcome.code) == ("settled", "refused")
        [good] = (await gated(room, asks())).rulings
        assert good.verdict == ("ask" if policy else "run")
    assert good.request is None


async def test_a_card_does_not_carry_the_requesters_signature(store: Store) -> None:
    """It says who asked; the proof stays with the turn."""
    [ruling] = (await gated(Desk(store).room, asks())).rulings
    assert ruling.request is not None
    assert ruling.request.requester == GUEST


@pytest.mark.parametrize(
    ("policy", "fields", "refused", "again"),
    [
        (ApprovalPolicy(), {"subject": "guest"}, "who asked for this has approved it", "somebody else"),
        (
            ApprovalPolicy(min_assurance="mfa"),
            {},
            "who approved this was not identified strongly enough",
            "a stronger sign-in",
        ),
    ],
)
async def test_what_the_decisions_cannot_prove_is_refused_or_asked_again(
    store: Store, policy: ApprovalPolicy, fields: Any, refused: str, again: str
) -> None:
    """Under the policy by which it was asked: refused. Under another one: asked again, by the present one."""
    desk = Desk(store, policy)
    assert refused in await desk.refused(desk.permit(signed(**fields)))
    reply = await desk.run(desk.permit(signed(**fields), policy_hash="another"))
    assert reply.again == "policy"
    assert again in reply.note
    assert desk.ledger.rows == []


async def test_one_may_approve_oneself_where_the_policy_says_so(store: Store) -> None:
    """And asks them."""
    desk = Desk(store, ApprovalPolicy(approvers=("user:guest",), allow_self_approval=True))
    reply = await desk.run(desk.permit(signed(subject="guest")))
    assert reply.outcome is not None
    assert reply.outcome.code == "ok"


async def test_an_edit_approves_the_arguments_it_wrote(store: Store) -> None:
    """The editor's signed answer to revision 1 carries revision 2 with exactly these arguments, and no others."""
    desk = Desk(store)
    edited = {"amount": 15, "to": "Ana"}
    ctx = pinned(user=asks())
    answer = signed(edited_args=edited)
    permit = desk.permit(answer, digest=digest_of(ctx, "c1.1", desk.tool, edited), revision=2)
    more = {"amount": 16, "to": "Ana"}
    dearer = desk.permit(answer, digest=digest_of(ctx, "c1.1", desk.tool, more), revision=2)
    assert "about other arguments" in await desk.refused(dearer, args=more)
    assert "about other arguments" in await desk.refused(desk.permit(answer))
    assert "about other arguments" in await desk.refused(permit.model_copy(update={"revision": 3}), args=edited)
    reply = await desk.run(permit, args=edited)
    assert reply.outcome is not None
    assert reply.outcome.code == "ok"
    assert [row[1] for row in desk.ledger.rows] == [edited]


async def test_a_second_ticket_needs_a_signed_word_about_the_first(store: Store) -> None:
    """Nobody knows whether the first try happened: only a person's signed `it did not` lets it run again."""
    desk = Desk(store)
    permit = desk.permit(signed())
    await store.claim(permit.digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    about = doubt_digest(permit.digest, 1)
    good = signed(digest=about, revision=2)
    for wrong in (
        (),
        (signed(digest=about, revision=2, verdict="denied"),),
        (signed(digest=doubt_digest(permit.digest, 2), revision=2),),
        (signed(),),
        (decision(digest=about, revision=2),),
        (signed(STRANGER, digest=about, revision=2),),
    ):
        await desk.refused(permit.model_copy(update={"doubts": wrong}), ticket=2)
    told = permit.model_copy(update={"doubts": (good,)})
    await desk.refused(told, ticket=3)
    reply = await desk.run(told, ticket=2)
    assert reply.outcome is not None
    assert reply.outcome.code == "ok"


async def test_a_word_about_a_try_frees_no_call_that_ended(store: Store) -> None:
    """The first try has an outcome, which is told: nothing runs again."""
    desk = Desk(store)
    reply = await desk.run(desk.permit(signed()))
    assert reply.outcome is not None
    about = doubt_digest(permit_for(desk.tool).digest, 1)
    told = desk.permit(signed(), doubts=(signed(digest=about, revision=2),))
    again = await desk.run(told, ticket=2)
    assert again.outcome == reply.outcome
    assert len(desk.ledger.rows) == 1


def test_an_unsigned_word_about_a_try_counts_where_unsigned_answers_do(store: Store) -> None:
    """As decisions do: in development, or where the policy accepts it."""
    about = doubt_digest(permit_for(pay_tool(Ledger())).digest, 1)
    permit = permit_for(pay_tool(Ledger()), doubts=(decision(digest=about, revision=2),))
    for accepts, development, counts in ((False, False, False), (False, True, True), (True, False, True)):
        room = room_with(store, pay_tool(Ledger(), ApprovalPolicy(accept_unsigned=accepts)))
        found = Judgement("c1.1", "ask", "approval")
        seats = seating(room.catalog, room.people, permit.ctx, "pay", found, NOW)
        witness = Witness(Verifier(), development=development)
        assert given_up(permit, 1, room.catalog.policy("pay"), witness, seats) is counts


@pytest.mark.parametrize("development", [True, False])
@pytest.mark.parametrize(
    ("extra", "sure"),
    [
        ({"user.team": "red", "route": "x"}, True),
        ({"user.team": "blue"}, False),
        ({"user.team": "red", "user.rank": 9}, False),
        ({}, False),
    ],
)
def test_what_a_turn_says_of_its_user_is_compared_with_the_directory(
    extra: dict[str, Any], sure: bool, development: bool
) -> None:
    """Attributes are the directory's, as tier and roles are; other context is whoever's who starts turns."""
    person = Person(id="guest", attributes={"team": "red"})
    assert believed(pinned(extra=extra), person, development=development) is sure
