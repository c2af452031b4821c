"""Decides and withdraws requests for known people. Every attempt ends in a receipt."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from signoff.approvals import audit_events
from signoff.approvals.card import render_card
from signoff.approvals.confirmation import is_confirmed, missing_words
from signoff.approvals.deadlines import first_approvers
from signoff.approvals.machine import refusal, settled_receipt, stale_receipt
from signoff.approvals.redaction import hide
from signoff.approvals.request_state import INBOX, with_browser
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision, at_least
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.requests import DecisionAuthor, DecisionDraft, decision_from_draft
from signoff.engine.kill_switch import OPERATOR
from signoff.formats.bounds import bounds_problem
from signoff.formats.replace import replace
from signoff.gateway.approvals.decision_parser import refused_receipt
from signoff.gateway.approvals.secret_masks import unmasked_args
from signoff.gateway.approvals.value_check import has_read
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.keys.signature_form import new_nonce
from signoff.people.directory import Directory
from signoff.people.eligibility import Eligibility, approver_spec_of, resolve_eligibility
from signoff.policypool.pool import ask_rules
from signoff.registry.catalog import Catalog
from signoff.registry.gates.grant_match import GrantMatcher
from signoff.store.request_reader import LoadedRequest

_NO_REQUEST: Final = "there is no such request"
_log = logging.getLogger(__name__)


async def decide(deps: GatewayDeps, draft: DecisionDraft, author: DecisionAuthor) -> Receipt:
    """Decide the request as `author`, stamped with the gateway's clock and signed.

    Raises `ServerUnavailable`. Records a refusal here, because the turn may be closed or may never learn of it. A
    person without read access gets the answer for an unknown one.
    """
    draft = replace(draft, delivery_id=draft.delivery_id or new_nonce())
    receipt = await _decide(deps, draft, author)
    if receipt.status == "refused":
        tried = decision_from_draft(draft, author, deps.clock())
        entry = audit_events.attempt_entry(tried, receipt, deps.clock(), reporter="gateway")
        await deps.attempts.note(deps.store, entry, receipt.code)
        if not await _readable(deps, draft.approval_id, author.person):
            return refused_receipt("unknown", draft.approval_id, _NO_REQUEST)
    return receipt


async def _decide(deps: GatewayDeps, draft: DecisionDraft, author: DecisionAuthor) -> Receipt:
    try:
        loaded = await deps.requests.load(draft.approval_id)
    except NotFound:
        return refused_receipt("unknown", draft.approval_id, _NO_REQUEST)
    request, person = loaded.request, author.person
    eligibility = eligibility_for(request, person, deps.people, deps.clock())
    if eligibility.code:
        return _turned_away(request, person, eligibility.code)
    if problem := bounds_problem(draft.edited_args):
        return refusal(request, "malformed", f"`edited_args` holds {problem}")
    whole = _unmask(loaded, draft)
    if isinstance(whole, Receipt):
        return whole
    decision = _decision(deps, request, whole, author)
    if isinstance(decision, Receipt):
        return decision
    if request.state == "pending" and decision.verdict == "approved":
        objection = await _unready(deps, loaded, draft, author)
        if objection is not None:
            return objection
    if decision.remember is not None and request.allow_remember and request.state == "pending":
        if not can_remember(request, person, deps.people, deps.clock()):
            return refusal(request, "not_allowed", why="passed_on")
        problem = await ask_rules(True, GrantMatcher(deps.catalog).problem, request, decision, loaded.args)
        if problem:
            return refusal(request, "malformed", problem)
    tool = deps.catalog.find_definition(request.tool, request.definition)
    compared = loaded.args if tool is None else tool.without_remarks(loaded.args)
    return await deps.decision_writer.write(request, decision, compared, arrived=author.received_at)


async def _unready(
    deps: GatewayDeps, loaded: LoadedRequest, draft: DecisionDraft, author: DecisionAuthor
) -> Receipt | None:
    request = loaded.request
    if not at_least(author.assurance, request.min_assurance):
        # Check first: typing a confirmation would not help.
        return refusal(request, "assurance")
    shown = _with_changed_card(deps, request, draft)
    if not is_confirmed(shown, draft.confirm):
        return refusal(request, "malformed", f"{missing_words(shown)}: send it as `confirm`")
    # Also for an edit: its author approves the unchanged arguments too, so they must have been read.
    read = request.card.whole if author.by_card else await has_read(deps.store, loaded, author.person, draft.seen)
    return None if read else refusal(request, "malformed", why="unseen")


async def withdraw(deps: GatewayDeps, approval_id: str, person: Person, reason: str) -> Receipt:
    """For the requester, approvers and operators.

    Raises `StoreUnavailable`. A person without read access gets the answer for an unknown one.
    """
    try:
        request = (await deps.requests.load(approval_id)).request
    except NotFound:
        return refused_receipt("unknown", approval_id, _NO_REQUEST)
    concerned = person.id == request.requester.user or OPERATOR in person.roles
    if not concerned and eligibility_for(request, person, deps.people, deps.clock()).code:
        receipt = refusal(request, "not_allowed", why="withdraw")
        stranger = Decision(approval_id=approval_id, verdict="withdrawn", reason=reason, subject=person.id)
        entry = audit_events.attempt_entry(stranger, receipt, deps.clock(), reporter="gateway")
        await deps.attempts.note(deps.store, entry, receipt.code)
        return (
            receipt
            if await _readable(deps, approval_id, person)
            else refused_receipt("unknown", approval_id, _NO_REQUEST)
        )
    wish = Decision(
        approval_id=approval_id,
        revision=request.revision,
        question_hash=request.question_hash,
        verdict="withdrawn",
        reason=reason,
        subject=person.id,
        delivery_id=new_nonce(),
        received_at=deps.clock(),
    )
    return await deps.decision_writer.write(request, wish)


async def undo_denial(deps: GatewayDeps, approval_id: str, person: Person, browser: str) -> Receipt:
    """Undo the denial that a person has just made in this browser session. Raises `StoreUnavailable`."""
    receipt = await deps.decision_writer.undo(approval_id, person.id, browser)
    if receipt.status == "refused":
        tried = Decision(approval_id=approval_id, verdict="retracted", subject=person.id, channel=INBOX)
        entry = audit_events.attempt_entry(tried, receipt, deps.clock(), reporter="gateway")
        await deps.attempts.note(deps.store, entry, receipt.code)
        if not await _readable(deps, approval_id, person):
            return refused_receipt("unknown", approval_id, _NO_REQUEST)
    return receipt


async def _readable(deps: GatewayDeps, approval_id: str, person: Person) -> bool:
    try:
        await Conversations(deps).load(approval_id, person)
    except NotFound:
        return False
    return True


def eligibility_for(request: ApprovalRequest, person: Person, people: Directory, now: datetime) -> Eligibility:
    """Pages offer decisions by this, and `decide` refuses by it.

    `check_authority` repeats it when the decision is written.
    """
    spec = approver_spec_of(request)
    return resolve_eligibility(person, people, spec, now)


def can_remember(request: ApprovalRequest, person: Person, people: Directory, now: datetime) -> bool:
    """True only for the first approvers of the policy.

    Approvers after an escalation are not asked about the next calls.
    """
    if not request.allow_remember or request.kind != "approval":
        return False
    first = approver_spec_of(replace(request, approvers=first_approvers(request)))
    return not resolve_eligibility(person, people, first, now).code


def _unmask(loaded: LoadedRequest, draft: DecisionDraft) -> DecisionDraft | Receipt:
    """Return a receipt if the values behind the masks are unknown."""
    request = loaded.request
    if draft.edited_args is None or request.state != "pending" or not request.secrets:
        return draft
    try:
        return replace(draft, edited_args=unmasked_args(draft.edited_args, loaded.args, request.secrets))
    except Refused as error:
        return refusal(request, "malformed", error.message)


def _with_changed_card(deps: GatewayDeps, request: ApprovalRequest, draft: DecisionDraft) -> ApprovalRequest:
    """For an edit, return the edited card and its masks."""
    if draft.edited_args is None or request.edit == "off":
        return request
    return edited_request(request, draft.edited_args, deps.catalog)


def _turned_away(request: ApprovalRequest, person: Person, code: ReceiptCode) -> Receipt:
    _log.warning("%s may not decide %s", person.id, request.id)
    if request.state != "pending":
        return settled_receipt(request)
    if code == "self_approval":
        return refusal(request, "self_approval")
    return refusal(request, "not_allowed")


def _decision(
    deps: GatewayDeps, request: ApprovalRequest, draft: DecisionDraft, author: DecisionAuthor
) -> Decision | Receipt:
    """Return a receipt if the draft names another question: never sign unseen content."""
    if not draft.question_hash and not deps.development:
        return refusal(request, "malformed", "`question_hash`: send back the one of the request that was shown")
    revision = 1 if draft.revision is None else draft.revision
    asked = request.question_hash if revision == request.revision else ""
    named = replace(draft, revision=revision, question_hash=draft.question_hash or asked)
    decision = decision_from_draft(named, author, deps.clock())
    if request.kind == "approval":
        decision = with_browser(decision, author.browser)
    # A decision on an earlier revision gets the state of the current one.
    is_asked = revision == request.revision and decision.question_hash == request.question_hash
    return decision if is_asked else stale_receipt(request)


def edited_request(request: ApprovalRequest, args: Mapping[str, Any], catalog: Catalog | None) -> ApprovalRequest:
    """The card of `args` shows the same arguments as the current policy, like the gates.

    `args` are the editor's view, with masks. The editor's own values are never hidden: that would reveal that one is a
    secret. `catalog` is `None` if unknown. If the catalog has a changed tool, the card shows no more than the earlier
    one.
    """
    tool = None if catalog is None else catalog.find_definition(request.tool, request.definition)
    show = _on_card(request)
    if catalog is not None and tool is not None and tool.definition == request.definition:
        show = catalog.policy(tool.activity).rules.show.only
    card = render_card(
        effect=tool.effect if tool is not None else "",
        title=tool.title if tool is not None else "",
        tool=request.tool,
        args=hide(args, request.secrets, lambda _: None),
        schema=tool.schema.schema if tool is not None else {},
        secrets=request.secrets,
        show=show,
    )
    # Keep the old rows of hidden values: otherwise an unchanged value would look changed.
    hidden = {row.name: row for row in request.card.rows if row.secret}
    rows = tuple(hidden.get(row.name, row) if row.secret else row for row in card.rows)
    return replace(request, card=replace(card, rows=rows))


def _on_card(request: ApprovalRequest) -> tuple[str, ...] | None:
    """`None` for all, if the card omits none."""
    rows = request.card.rows
    return tuple(row.name for row in rows if row.name) if any(not row.name for row in rows) else None
