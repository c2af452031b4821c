"""Checks that the declared people can decide every request of a catalog."""

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet

from signoff.approvals.deadlines import escalated_groups
from signoff.approvals.quorum import Voter, suffices
from signoff.contracts.approval import ApproverGroup
from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person
from signoff.formats.nearest_name import did_you_mean
from signoff.people.directory import Directory
from signoff.people.eligibility import rights
from signoff.people.login import OIDC
from signoff.people.on_call import ON_CALL
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.terms import VerdictTerms, terms_of
from signoff.registry.catalog import Catalog
from signoff.registry.gates.actor_bounds import direct_terms
from signoff.registry.gates.inventory import InventoryRow, inventory


def check_approver_coverage(
    catalog: Catalog, people: Directory, *, by_login: Collection[str] = (), place: str = "`people`"
) -> None:
    """Raise `ConfigError` for a tool whose request no tenant's active people could approve: a role without members,
    missing people, or too few of them. `by_login` holds roles that undeclared people may get at sign-in, in unknown
    number. `place` is where people are declared, for messages.
    """
    active = [person for person in people.all() if person.active]
    for row in inventory(catalog):
        for field, why in _problems(row, catalog.policy(row.tool).rules, active, by_login, place):
            raise ConfigError(f"tool `{row.tool}` {why}", tool_name=row.tool, field=field)
        for actor in (catalog.actors[name] for name in row.actors if row.approvers):
            directed = direct_terms(actor, catalog.policy(row.tool), terms_of(ApprovalPolicy(), row.approvers))
            for entry in () if actor.escalation is None else (*directed.approvers, *directed.escalate_to):
                _check_entry(actor.name, entry, active, by_login, place)


def find_holes(
    catalog: Catalog, people: Sequence[Person], *, by_login: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return, by tool, why active `people` of one tenant cannot decide every request.

    `by_login` is as in `check_approver_coverage`.
    """
    active = [person for person in people if person.active]
    found = {
        row.tool: tuple(why for _, why in _problems(row, catalog.policy(row.tool).rules, active, by_login, "`people`"))
        for row in inventory(catalog)
    }
    return {tool: holes for tool, holes in found.items() if holes}


def _check_entry(actor: str, entry: str, active: Sequence[Person], by_login: Collection[str], place: str) -> None:
    kind, _, name = entry.partition(":")
    # The people of a rota change: it counts as a role that anyone may get.
    there = entry.startswith(ON_CALL) or (kind == "role" and name in by_login)
    there = there or any(entry in rights(person) for person in active)
    if not there:
        why = f"`escalation` names `{entry}`, which no active person is: add one to {place}, or name others"
        raise ConfigError(f"actor `{actor}`: {why}", actor=actor, field="escalation", value=entry)


def approvers_without_login(catalog: Catalog, people: Directory, issuer: str) -> tuple[str, ...]:
    """Return active approvers without a declared login at the provider `issuer`.

    If groups of that provider give roles, such a login could count as another person next to them.
    """
    rows = inventory(catalog)
    asked = {each for row in rows for each in row.approvers}
    asked |= {each for row in rows for each in catalog.policy(row.tool).rules.later_approvers}
    return tuple(
        dict.fromkeys(
            person.id
            for person in people.all()
            if person.active
            and not asked.isdisjoint(rights(person))
            and not any(each.startswith(f"{issuer}#") for each in person.identities.get(OIDC, ()))
        )
    )


def _problems(
    row: InventoryRow, policy: ApprovalPolicy, active: Sequence[Person], by_login: Collection[str], place: str
) -> Iterator[tuple[str, str]]:
    if not row.approvers:
        return
    coming = {f"role:{role}" for role in by_login}
    coming |= {each for each in (*row.approvers, *policy.later_approvers) if each.startswith(ON_CALL)}
    # Count per tenant: people decide for their own tenant only, so one person each of two tenants is no quorum.
    if coming.isdisjoint(row.approvers) and not any(_eligible(row.approvers, here) for here in _tenants(active)):
        asked = ", ".join(f"`{each}`" for each in row.approvers)
        yield (
            "approvers",
            f"asks {asked}, but no active person is one of them: add one to {place}, or name other `approvers`",
        )
    roles = {role for person in active for role in person.roles} | set(by_login)
    for approver in (*row.approvers, *policy.later_approvers):
        kind, _, role = approver.partition(":")
        if kind == "role" and role not in roles:
            others = "escalate_to" if approver in policy.escalate_to else "terms"
            field = "approvers" if approver in row.approvers else others
            near = did_you_mean(role, roles) or f"; give it to a person in {place}, or leave it out"
            yield field, f"names the role `{role}` in `{field}`, which no active person has{near}"
    yield from _too_few(policy, terms_of(policy, row.approvers), active, coming, place)
    for term in policy.terms:
        stricter = terms_of(policy, row.approvers, (term.as_applied(term.when),))
        for _, why in _too_few(policy, stricter, active, coming, place):
            yield "terms", f"where `{term.when}`, {why}"


def _too_few(
    policy: ApprovalPolicy, terms: VerdictTerms, active: Sequence[Person], coming: AbstractSet[str], place: str
) -> Iterator[tuple[str, str]]:
    later = terms.escalate_to
    if later and coming.isdisjoint(later) and not any(_eligible(later, here) for here in _tenants(active)):
        asked = ", ".join(f"`{each}`" for each in later)
        yield (
            "escalate_to",
            f"escalates to {asked}, but no active person is one of them: add one to {place}, or name others",
        )
    # Count the people after escalation too: they may complete the quorum later.
    named = (*terms.approvers, *terms.escalate_to)
    # The people of `route_to` are known only for each call.
    fewest = 1 if policy.route_to else terms.quorum
    most = max(len({each.person_id or each.id for each in _eligible(named, here)}) for here in _tenants(active))
    if policy.edit == "propose" and most < fewest + 1 and coming.isdisjoint(named) and not policy.allow_self_approval:
        yield (
            "edit",
            f"lets approvers propose other arguments, which {fewest} others must approve, but a tenant has at most "
            f"{most}: add people to {place}, or use `edit: off` or `edit: approve`",
        )
    if most < fewest and coming.isdisjoint(named):
        yield (
            "quorum",
            f"needs {fewest} people to approve, but a tenant has at most {most}: lower `quorum`, or add people to "
            f"{place}",
        )
    yield from _group_problems(policy, terms, active, coming, place)


def _group_problems(
    policy: ApprovalPolicy, terms: VerdictTerms, active: Sequence[Person], coming: AbstractSet[str], place: str
) -> Iterator[tuple[str, str]]:
    """Yield why no tenant's people can fill the groups of these terms, one place each."""
    known = terms.groups if policy.route_to is None else [group for each in terms.applied for group in each.groups]
    # A role from a sign-in may have any number of members.
    asked = [group for group in known if coming.isdisjoint(group.of)]
    groups = escalated_groups(asked, terms.escalate_to)
    entries = {entry for group in groups for entry in group.of}
    tenants = [[_voter(each, entries) for each in _eligible(tuple(entries), here)] for here in _tenants(active)]
    if not any(suffices(0, groups, voters) for voters in tenants):
        wanted = ", ".join(f"{group.quorum} of {' or '.join(f'`{each}`' for each in group.of)}" for group in asked)
        yield (
            "approvers",
            f"asks {wanted}, each another person, but no tenant has such people: add them to {place}, or ask fewer",
        )
        return
    proposes = policy.edit == "propose" and not policy.allow_self_approval
    if proposes and not any(_outlives_an_edit(groups, voters) for voters in tenants):
        yield (
            "edit",
            "lets approvers propose other arguments, and once one of them did, the others cannot fill every group of "
            f"`approvers`: add people to {place}, or use `edit: off` or `edit: approve`",
        )


def _voter(person: Person, entries: Collection[str]) -> Voter:
    human = person.person_id or person.id
    return Voter(human, {human: frozenset(rights(person)).intersection(entries)})


def _outlives_an_edit(groups: Sequence[ApproverGroup], voters: Sequence[Voter]) -> bool:
    """Return whether `groups` can still be filled after any one of `voters` edits the arguments and cannot decide."""
    others = ([each for each in voters if each.human != editor.human] for editor in voters)
    return suffices(0, groups, voters) and all(suffices(0, groups, left) for left in others)


def _tenants(people: Sequence[Person]) -> list[list[Person]]:
    names = dict.fromkeys(person.tenant for person in people)
    # Without people, return one empty tenant, because `max` needs a value.
    return [[person for person in people if person.tenant == name] for name in names] or [[]]


def _eligible(approvers: Sequence[str], people: Sequence[Person]) -> list[Person]:
    return [person for person in people if not set(rights(person)).isdisjoint(approvers)]
