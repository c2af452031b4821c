"""What people had remembered: the same answer for the next calls like one they decided."""

from datetime import datetime
from typing import Literal

from signoff.contracts.frozen_model import Shape


class Like(Shape):
    """Which calls a remembered answer is for.

    `session` is empty for every session of the tenant. `exact` is the digest of the arguments, or empty where `where`,
    a CEL predicate over `args`, says which. `rule` and `policy_hash` are why people were asked: another reason is
    another question.
    """

    tenant: str
    session: str = ""
    tool: str
    definition: str
    exact: str = ""
    where: str = ""
    rule: str = ""
    policy_hash: str = ""


class Grant(Shape):
    """One remembered answer as it lies in the store. Times by the store's clock, in UTC.

    `people` are all whose answer it is: as many as the quorum for an approval. `approval_id` is the request they
    answered, `requester` whose call that was: an answer for a session serves nobody else. `uses` is how often it may
    answer in all.
    """

    id: str
    verdict: Literal["approved", "denied"]
    like: Like
    people: tuple[str, ...]
    reason: str = ""
    approval_id: str
    requester: str = ""
    created_at: datetime
    expires_at: datetime
    uses: int
    uses_left: int
    revoked_by: str = ""
    revoked_at: datetime | None = None


class Freeze(Shape):
    """A tenant whose tools do not run until it is thawed. `at` by the store's clock, in UTC."""

    tenant: str
    reason: str
    by: str
    at: datetime


class Swept(Shape):
    """What a sweep did: how many requests it withdrew, and the ids of those that wait all the same.

    Those may be answered, but nothing of a frozen tenant runs.
    """

    withdrawn: int = 0
    waiting: tuple[str, ...] = ()


class Frozen(Shape):
    """The answer to a freeze: the freeze that stands, and what was swept."""

    freeze: Freeze
    swept: Swept
