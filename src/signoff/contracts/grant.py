"""Remembered answers, and the freezes that stop them."""

from datetime import datetime
from typing import Literal

from signoff.contracts.call import RuleReference
from signoff.contracts.frozen_model import FrozenModel


class GrantScope(FrozenModel):
    """Selects the calls of a remembered answer."""

    tenant: str
    session: str = ""
    """The session. "" for every session of the tenant."""
    actor: str = ""
    """The actor of the answered call."""
    tool: str
    definition: str
    """The hash of the tool's declaration."""
    exact: str = ""
    """The digest of the arguments. "" if `where` selects."""
    where: str = ""
    """A CEL predicate over `args`."""
    rule: RuleReference | None = None
    """The rule of the answered question: another reason is another question."""
    policy_hash: str = ""
    """The policy of the answered question."""


class Grant(FrozenModel):
    """One remembered answer in the store. Times by the store's clock, in UTC."""

    id: str
    verdict: Literal["approved", "denied"]
    like: GrantScope
    """The selected calls."""
    people: tuple[str, ...]
    """The ids of the people who gave the answer: as many as the quorum for an approval."""
    reason: str = ""
    approval_id: str
    """The answered request."""
    requester: str = ""
    """The requester of that call: an answer for a session applies only to them."""
    created_at: datetime
    """The start of its lifetime."""
    expires_at: datetime
    """The end of its lifetime."""
    uses: int
    """The total number of uses."""
    uses_left: int
    """The remaining uses."""
    revoked_by: str = ""
    """The person who revoked it, or ""."""
    revoked_at: datetime | None = None


class Freeze(FrozenModel):
    """A tenant whose tools do not run until the freeze ends."""

    tenant: str
    reason: str
    by: str
    """The person who froze it."""
    at: datetime
    """When, by the store's clock, in UTC."""


class SweepResult(FrozenModel):
    """The result of a sweep. Pending requests may be answered, but no call of a frozen tenant runs."""

    withdrawn: int = 0
    """Number of withdrawn requests."""
    waiting: tuple[str, ...] = ()
    """The ids of the requests that are still pending."""


class FreezeResult(FrozenModel):
    """The answer to a freeze."""

    freeze: Freeze
    """The present freeze."""
    swept: SweepResult
    """The result of the sweep."""
