"""Matches grants with calls, and checks which answers can be remembered. No I/O."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from signoff.approvals.grant_rules import exact_digest, wish_problem
from signoff.approvals.redaction import names_of_repeats
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import PERMISSION_RULE, REQUESTER_RULE, CallContext
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ConfigError
from signoff.contracts.grant import Grant
from signoff.contracts.names import PEER
from signoff.people.directory import Directory, humans_of
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.grant_predicate import GrantPredicate, compile_where
from signoff.registry.catalog import Catalog
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import UNREMEMBERED_RULES
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool

_PREDICATES_KEPT: Final = 1_000


class GrantMatcher:
    """Matches grants with the calls of one catalog. Caches recently compiled predicates."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._predicates: dict[tuple[str, str, tuple[str, ...]], GrantPredicate | ConfigError] = {}

    def problem(self, request: ApprovalRequest, decision: Decision, args: Mapping[str, Any]) -> str:
        """Return, for its author, why `decision` cannot be remembered; "" if it can, or need not be."""
        wish = decision.remember
        if wish is None:
            return ""
        if not request.allow_remember or request.kind != "approval":
            return "`remember`: the policy of this request lets no answer be remembered"
        if decision.edited_args is not None:
            # The resulting call is judged, and perhaps corrected, only after this answer.
            return "`remember`: changed arguments are not remembered"
        if decision.verdict == "denied" and not request.veto:
            return "`remember`: one denial does not end this request, so it cannot be remembered"
        if decision.verdict == "approved" and request.rule == REQUESTER_RULE:
            return "`remember`: the directory does not confirm the requester, so each call needs approval"
        if decision.verdict == "approved" and request.rule == PERMISSION_RULE:
            return "`remember`: a permission is overridden for one call at a time"
        if not decision.subject:
            return "`remember`: an answer without an author is not remembered"
        return wish_problem(wish) or self._unfit(request, wish.where, args)

    def applies(
        self, grant: Grant, ctx: CallContext, found: JudgedCall, args: Mapping[str, Any], people: Directory
    ) -> bool:
        """Return whether `grant` answers a call that would otherwise need approval.

        Does not check remaining uses: only spending one does.
        """
        tool, like = found.tool, grant.like
        policy = None if tool is None else self._catalog.policy(tool.activity).policy
        if tool is None or found.kind != "ask" or policy is None or not policy.allow_remember:
            return False
        # Compare the definition too: approvers were not asked about a changed tool.
        here = (like.tenant, like.tool, like.definition) == (ctx.tenant, tool.name, definition_hash(tool))
        if not here or not self._serves(grant, ctx, people):
            return False
        # Only an approval must still hold today: an outdated denial errs on the safe side.
        if grant.verdict == "approved" and not _still_given(grant, ctx, found, policy, people):
            return False
        return self._like(grant, tool, args)

    def steps(self, grant: Grant, found: JudgedCall, args: Mapping[str, Any]) -> int:
        """Return the maximum number of steps of the grant's predicate over these arguments; 0 without one."""
        if found.tool is None or not grant.like.where:
            return 0
        try:
            return self._predicate(found.tool, grant.like.where).steps(args)
        except ConfigError:
            return 0

    def is_personal(self, grant: Grant, ctx: CallContext) -> bool:
        """Return whether in `ctx` the grant serves only the person whose call was answered.

        This holds for every grant for a session, and for every approval for an outside caller: its approver thought of
        that agent acting for that person.
        """
        return grant.like.session != "" or (grant.verdict == "approved" and self._is_outside(ctx.actor, ctx.channel))

    def _is_outside(self, actor: str, channel: str = "") -> bool:
        declared = self._catalog.actors.get(actor)
        return channel == PEER or declared is None or declared.external is not None

    def _serves(self, grant: Grant, ctx: CallContext, people: Directory) -> bool:
        given_for = grant.like.actor
        outside = self._is_outside(ctx.actor, ctx.channel) or self._is_outside(given_for)
        if grant.verdict == "approved" and outside and given_for != ctx.actor:
            return False
        if not self.is_personal(grant, ctx):
            return True
        # Anyone may name a session, so a grant for one person in it serves no other person.
        humans = {people.person_id(each, ctx.tenant) for each in (grant.requester, ctx.user.user)}
        return grant.like.session in ("", ctx.session) and len(humans) == 1

    def _like(self, grant: Grant, tool: Tool, args: Mapping[str, Any]) -> bool:
        like = grant.like
        if not like.where:
            # `_digest` is empty for arguments that have no canonical form: two such must not pass for the same.
            return like.exact != "" and like.exact == _digest(tool, args)
        try:
            predicate = self._predicate(tool, like.where)
            # Without this check, an approver who left a guess could learn from a later call that the secret matches it.
            return predicate.holds(args) and not predicate.hidden_read(names_of_repeats(args, tool.masked_arguments))
        except ConfigError:
            return False

    def _unfit(self, request: ApprovalRequest, where: str, args: Mapping[str, Any]) -> str:
        tool = self._catalog.find_definition(request.tool, request.definition)
        if tool is None or definition_hash(tool) != request.definition:
            return "`remember`: the tool has changed since this was asked"
        if not where.strip():
            return "" if _digest(tool, args) else "`remember`: these arguments cannot be compared with later ones"
        try:
            predicate = self._predicate(tool, where, request.secrets)
        except ConfigError as error:
            return f"`remember.where`: {error.message}"
        hidden = {*tool.masked_arguments, *request.secrets}
        # Check this before evaluating the predicate, so that right and wrong guesses get the same refusal.
        if why := predicate.hidden_read(names_of_repeats(args, hidden)):
            return f"`remember.where`: {why}"
        if predicate.holds(args):
            return ""
        return "`remember.where`: it is not true of the arguments of this very call"

    def _predicate(self, tool: Tool, where: str, asked_secrets: Collection[str] = ()) -> GrantPredicate:
        """Raises `ConfigError`."""
        hidden = tuple(sorted({*tool.masked_arguments, *asked_secrets}))
        key = (definition_hash(tool), where.strip(), hidden)
        found = self._predicates.get(key)
        if found is None:
            if len(self._predicates) >= _PREDICATES_KEPT:
                # Approvers write these, so their number is unlimited. Compiling one again takes about a millisecond.
                self._predicates.clear()
            try:
                found = compile_where(where.strip(), self._catalog.policy(tool.activity), hidden)
            except ConfigError as error:
                # Cache the error too: a grant stored under looser rules meets every call and must not be compiled each
                # time.
                found = error
            self._predicates[key] = found
        if isinstance(found, ConfigError):
            raise found
        return found


def _still_given(grant: Grant, ctx: CallContext, found: JudgedCall, policy: ApprovalPolicy, people: Directory) -> bool:
    """Return whether today's request would be the same, and its approvers may still answer it for this requester.

    Another policy or reason is another request, and so is a requester with an uncertain identity.
    """
    verdict = found.verdict
    if verdict is None or verdict.rule in UNREMEMBERED_RULES:
        return False
    if (verdict.rule, verdict.policy_hash) != (grant.like.rule, grant.like.policy_hash):
        return False
    # A grant must not bypass two rules: the quorum, and that requesters cannot approve their own calls.
    humans = {people.person_id(person, ctx.tenant) for person in grant.people}
    own = not humans.isdisjoint(humans_of(ctx.user, people, ctx.tenant))
    if len(humans) < verdict.terms.quorum or (own and not policy.allow_self_approval):
        return False
    known = [people.find(person, ctx.tenant) for person in grant.people]
    return all(person is not None and person.active for person in known)


def _digest(tool: Tool, args: Mapping[str, Any]) -> str:
    try:
        return exact_digest(tool.name, definition_hash(tool), tool.without_remarks(args))
    except NotCanonical:
        return ""
