import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from activity_kit import ARGS, about, asked, pinned, worker_deps
from some import some
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.question_writer import Edit, QuestionWriter, Subject
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import GateTask
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import PERMISSION_RULE, REQUESTER_RULE, RuleReference
from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.compiled_policy import PolicyVerdict
from signoff.registry.manifest.channel_sections import DeclaredChannel, RoutingRules
from signoff.store.questions.answers import Answers
from signoff.store.store import Store
from signoff.store.vouched_people import vouched_writer
from signoff.testing.builders import a_person
from signoff.testing.questions import answer, keep, number_of

NOW = datetime.now(UTC)
SIGNER = Signer(PrivateKeys(keys=(new_key(NOW - timedelta(days=1)),)))
LOGIN = "https://login.example.com#7"
AGAIN = "this was asked again; open it again"
OVER = "another answer or the deadline settled this; open it again"


def call_of(args: Any = ARGS) -> CallPart:
    return CallPart(call="c1.1", tool="pay", args=Content(inline=args))


def task_of(args: Any = ARGS, **fields: Any) -> GateTask:
    return GateTask(**{"ctx": pinned(), "calls": (call_of(args),)} | fields)


def deps_of(store: Store, policy: Any = True, **fields: Any) -> WorkerDeps:
    more = {name: fields.pop(name) for name in ("clock",) if name in fields}
    deps = worker_deps(store, pay_tool(Ledger(), policy), **fields)
    return dataclasses.replace(deps, verifier=SIGNER.verifier(), **more)


def subject_of(deps: WorkerDeps, args: Any = ARGS, **fields: Any) -> Subject:
    tool = some(deps.catalog.tool_view(pinned()).tool("pay"))
    given = {"call": call_of(args), "args": args, "tool": tool, "verdict": None, "digest": "d" * 64, "notes": ()}
    return Subject(**given | fields)


def verdict_of(rule: RuleReference, **fields: Any) -> PolicyVerdict:
    given: dict[str, Any] = {"rule_text": "true", "reasons": ("it is so",), "policy_hash": "p" * 64, "evaluators": ""}
    return PolicyVerdict(**{"verdict": "ask", "rule": rule} | given | fields)


async def first_of(deps: WorkerDeps, **fields: Any) -> ApprovalRequest:
    tool = some(deps.catalog.tool_view(pinned()).tool("pay"))
    return await asked(deps, tool, **fields)


async def edit_of(deps: WorkerDeps, decision: Decision, **fields: Any) -> Edit | str:
    if not decision.signature:
        await keep(deps.store, decision)
    tool = deps.catalog.tool_view(pinned()).tool("pay")
    number = await number_of(deps.store, decision)
    return await QuestionWriter(deps).edit(task_of(edit=number, **fields), tool)


async def after(deps: WorkerDeps, edit: Edit | str, **fields: Any) -> ApprovalRequest:
    assert isinstance(edit, Edit)
    args = {"amount": 1}
    found = await QuestionWriter(deps).ask_changed(task_of(args), subject_of(deps, args, **fields), edit)
    assert isinstance(found, ApprovalRequest)
    return found


def change_of(request: ApprovalRequest, **fields: Any) -> Decision:
    return about(request, **{"edited_args": {"amount": 1}} | fields)


def signed_change(decision: Decision) -> Decision:
    return SIGNER.sign_decision(replace(decision, received_at=NOW, assurance="session"))


EDITABLE = ApprovalPolicy(edit="approve")


async def test_tool_declaration_is_stored_under_its_hash(store: Store) -> None:
    deps = deps_of(store)
    about = subject_of(deps)
    request = await QuestionWriter(deps).ask(task_of(), about)
    assert await store.get_blob(request.definition) == canonical_json(about.tool.declaration)


@table(("wanted", "told"), (("ops",), ("ops",)), (None, ("mail",)))
async def test_question_records_origin_and_target_channels(
    store: Store, wanted: tuple[str, ...] | None, told: tuple[str, ...]
) -> None:
    channels, rules = [DeclaredChannel(each, "email") for each in ("mail", "ops")], RoutingRules(default=("mail",))
    deps = deps_of(store, ApprovalPolicy(notify=wanted), channels=channels, routing=rules)
    request = await QuestionWriter(deps).ask(task_of(ctx=pinned(channel="slack")), subject_of(deps))
    assert (request.channel, request.notify) == ("slack", told)


@table(
    ("verdict", "level", "remembered", "policy_hash"),
    (None, "user", True, ""),
    (verdict_of(RuleReference(name="ask_if")), "user", True, "p" * 64),
    (verdict_of(RuleReference(name="ask_if"), level="admin"), "admin", True, "p" * 64),
    (verdict_of(REQUESTER_RULE), "user", False, "p" * 64),
    (verdict_of(PERMISSION_RULE), "user", False, "p" * 64),
)
async def test_verdict_sets_level_policy_and_grant_permission(
    store: Store, verdict: PolicyVerdict | None, level: str, remembered: bool, policy_hash: str
) -> None:
    """A question about the requester or from the tool's own check allows no grant."""
    deps = deps_of(store, ApprovalPolicy(allow_remember=True))
    request = await QuestionWriter(deps).ask(task_of(), subject_of(deps, verdict=verdict))
    assert (request.level, request.allow_remember, request.policy_hash) == (level, remembered, policy_hash)


@table(("doubt", "seconds"), (0, 60.0), (1, 86_400.0))
async def test_in_doubt_question_keeps_the_timeout_of_the_policy(store: Store, doubt: int, seconds: float) -> None:
    deps = deps_of(store, clock=lambda: NOW)
    request = await QuestionWriter(deps).ask(task_of(doubt=doubt, ask_within=60.0), subject_of(deps))
    assert request.timeout == seconds


@table(("told", "revision"), (True, 1), (False, 2))
async def test_answer_not_yet_delivered_keeps_its_question(store: Store, told: bool, revision: int) -> None:
    deps = deps_of(store)
    request = await QuestionWriter(deps).ask(task_of(), subject_of(deps))
    assert request.opened_at is not None
    await answer(store, about(request))
    since = request.opened_at - timedelta(seconds=1) if told else None
    again = await QuestionWriter(deps).ask(task_of(asked_since=since), subject_of(deps))
    assert again.revision == revision


@table(
    ("change", "signed", "found"),
    ({}, False, None),
    ({"question_hash": ""}, False, AGAIN),
    ({"revision": None}, False, None),
    ({"question_hash": "0" * 64}, False, AGAIN),
    ({}, True, None),
    ({"question_hash": ""}, True, AGAIN),
)
async def test_edit_must_name_the_current_question(
    store: Store, change: dict[str, Any], signed: bool, found: str | None
) -> None:
    deps = deps_of(store, EDITABLE)
    decision = replace(change_of(await first_of(deps)), **change)
    if signed:
        decision = signed_change(decision)
        await answer(store, decision)
    edit = await edit_of(deps, decision)
    assert (edit if isinstance(edit, str) else None) == found


async def test_signed_edit_that_is_not_stored_is_rejected(store: Store) -> None:
    deps = deps_of(store, EDITABLE)
    decision = signed_change(change_of(await first_of(deps)))
    assert await edit_of(deps, decision) == OVER
    await answer(store, decision)
    assert isinstance(await edit_of(deps, decision), Edit)
    await Answers(store).void(decision.approval_id, decision.delivery_id)
    assert await edit_of(deps, decision) == OVER


async def test_edit_is_found_again_and_a_second_edit_is_rejected(store: Store) -> None:
    deps = deps_of(store, EDITABLE)
    request = await first_of(deps)
    decision, other = change_of(request), change_of(request, subject="ana", delivery_id="d2")
    asked_after = await after(deps, await edit_of(deps, decision))
    assert (asked_after.revision, asked_after.edit_of) == (2, 1)
    assert await after(deps, await edit_of(deps, decision)) == asked_after
    assert await edit_of(deps, other) == AGAIN


def of_acme(person: str, **fields: Any) -> Person:
    return a_person(person, tenant="acme", **fields)


@table(("subject", "name", "human"), ("ana", "Ana", "ana"), ("ana2", "Ana B", "ana"), ("stranger", "", "stranger"))
async def test_edit_records_its_author(store: Store, subject: str, name: str, human: str) -> None:
    people = [
        of_acme("ana", name="Ana"),
        of_acme("ana2", name="Ana B", person_id="ana"),
        a_person("ana2", name="Another"),
    ]
    deps, ctx = deps_of(store, EDITABLE, people=people), pinned(tenant="acme")
    request = await first_of(deps, ctx=ctx)
    edit = await edit_of(deps, change_of(request, approval_id=request.id, subject=subject), ctx=ctx)
    assert isinstance(edit, Edit)
    assert (edit.subject, edit.name, edit.human) == (subject, name, human)


async def test_undeclared_author_of_an_edit_is_named_from_the_sign_in(store: Store) -> None:
    cy = of_acme(id_from_login(LOGIN), name="Cy", identities={"oidc": (LOGIN,)})
    await store.run(vouched_writer(vouch(SIGNER, cy, names=(), now=NOW, lifetime=timedelta(days=7))))
    deps, ctx = deps_of(store, EDITABLE), pinned(tenant="acme")
    request = await first_of(deps, ctx=ctx)
    edit = await edit_of(deps, change_of(request, approval_id=request.id, subject=cy.id), ctx=ctx)
    assert isinstance(edit, Edit)
    assert (edit.subject, edit.name) == (cy.id, "Cy")


@table(("names", "who"), ({"ana": "Ana"}, "Ana"), ({}, "ana"))
@table("note", "", "the policy changed while the request was waiting")
async def test_note_of_an_edited_question_starts_with_the_author(
    store: Store, names: dict[str, str], who: str, note: str
) -> None:
    deps = deps_of(store, EDITABLE, people=[a_person(each, name=name) for each, name in names.items()])
    request = await first_of(deps)
    found = await after(deps, await edit_of(deps, change_of(request, subject="ana")), notes=(note,) if note else ())
    assert (found.edited_by, found.edited_name) == ("ana", names.get("ana", ""))
    assert found.card.note == "; ".join(filter(None, (f"{who} edited the arguments", note)))
    assert found.card.notes == found.notes
    assert [(row.name, row.value) for row in found.before] == [("amount", "20"), ("to", "Ana")]


@table(("edit", "proposers"), ("propose", ("ana2", "ana")), ("approve", ()))
async def test_proposer_of_arguments_counts_as_a_requester(store: Store, edit: Any, proposers: tuple[str, ...]) -> None:
    people = [a_person("ana"), a_person("ana2", person_id="ana")]
    deps = deps_of(store, ApprovalPolicy(edit=edit), people=people)
    request = await first_of(deps)
    found = await after(deps, await edit_of(deps, change_of(request, subject="ana2")))
    assert found.proposers == proposers


@table(("late", "escalated"), (False, False), (True, True))
async def test_edited_question_keeps_the_escalation_state(store: Store, late: bool, escalated: bool) -> None:
    policy = ApprovalPolicy(edit="approve", escalate_after=3_600.0, escalate_to=("role:board",))
    deps = deps_of(store, policy)
    request = await first_of(deps)
    moved = dataclasses.replace(deps, clock=lambda: NOW + timedelta(hours=2 if late else -2))
    edit = await edit_of(moved, change_of(request))
    assert isinstance(edit, Edit)
    assert edit.old.escalated is escalated
    found = await after(deps, edit)
    assert (found.edit_of, found.edit_delivery) == (1, "of approver")
    assert found.card.note == "Approver edited the arguments"
    assert ("role:board" in found.approvers) is escalated
    assert found.escalate_after == (None if escalated else 3_600.0)
