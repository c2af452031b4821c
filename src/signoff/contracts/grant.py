"""Remembered answers, and the freezes that stop them."""

from datetime import datetime
from typing import Literal

from signoff.contracts.call import RuleReference
from signoff.contracts.frozen_model import FrozenModel


class GrantScope(FrozenModel):
    """Selects the calls that a remembered answer is for."""

    tenant: str
    """The tenant."""
    session: str = ""
    """The session; "" for every session of the tenant."""
    actor: str = ""
    """The actor whose call was answered."""
    tool: str
    """The tool's name."""
    definition: str
    """The hash of the tool's declaration."""
    exact: str = ""
    """The digest of the arguments; "" where `where` selects."""
    where: str = ""
    """A CEL predicate over `args`."""
    rule: RuleReference | None = None
    """The rule by which people were asked: another reason is another question."""
    policy_hash: str = ""
    """The policy by which people were asked."""


class Grant(FrozenModel):
    """One remembered answer as it lies in the store. Times by the store's clock, in UTC."""

    id: str
    """The grant's id."""
    verdict: Literal["approved", "denied"]
    """The answer."""
    like: GrantScope
    """The calls that it is for."""
    people: tuple[str, ...]
    """The ids of all whose answer it is: as many as the quorum for an approval."""
    reason: str = ""
    """The reason given."""
    approval_id: str
    """The request that was answered."""
    requester: str = ""
    """Whose call that was: an answer for a session serves nobody else."""
    created_at: datetime
    """Since when it is remembered."""
    expires_at: datetime
    """Until when it is remembered."""
    uses: int
    """How often it may answer in all."""
    uses_left: int
    """How often it may still answer."""
    revoked_by: str = ""
    """Who revoked it, or ""."""
    revoked_at: datetime | None = None
    """When it was revoked."""


class Freeze(FrozenModel):
    """A tenant whose tools do not run until it is thawed."""

    tenant: str
    """The tenant."""
    reason: str
    """The reason given."""
    by: str
    """Who froze it."""
    at: datetime
    """When, by the store's clock, in UTC."""


class SweepResult(FrozenModel):
    """The result of a sweep. What still waits may be answered, but nothing of a frozen tenant runs."""

    withdrawn: int = 0
    """How many requests were withdrawn."""
    waiting: tuple[str, ...] = ()
    """The ids of those that wait all the same."""


class FreezeResult(FrozenModel):
    """The answer to a freeze."""

    freeze: Freeze
    """The freeze that stands."""
    swept: SweepResult
    """The result of the sweep."""
