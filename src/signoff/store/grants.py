"""Stores grants, the "remembered answers"."""

import logging
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from pydantic import ValidationError
from sqlalchemy import Connection, Row, and_, case, func, select, update

from signoff.contracts.call import RuleReference
from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.content import Remark
from signoff.contracts.decision import GrantRequest
from signoff.contracts.errors import NotFound
from signoff.contracts.grant import Grant, GrantScope
from signoff.formats.replace import replace
from signoff.languages.remarks import worded
from signoff.store.claim_conditions import SPENT, hold_grant, insert_new, spend_grant
from signoff.store.store import Also, Store
from signoff.store.tables import GRANTS, StoreClock, time_from_millis

_log = logging.getLogger(__name__)
CANDIDATES: Final = 200
"""The number of grants tried for one tool. With more, approvers are asked instead."""
_EXACT: Final = "these arguments"
_ROWS: Final = select(GRANTS, (GRANTS.c.uses - SPENT).label("uses_left"))
_USABLE: Final = (GRANTS.c.uses > SPENT, GRANTS.c.revoked_at.is_(None), GRANTS.c.expires_at > StoreClock())


class Grants:
    """Reads and writes grants. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_usable(self, tenant: str, session: str, tool: str) -> list[Grant | None]:
        """Denials come first, then the oldest. `None` marks a row that cannot be read as a grant."""
        query = (
            _ROWS.where(GRANTS.c.tenant == tenant, GRANTS.c.tool == tool, GRANTS.c.session.in_(("", session)), *_USABLE)
            # In descending order `denied` precedes `approved`, so neither the limit nor an approval hides a denial.
            .order_by(GRANTS.c.verdict.desc(), GRANTS.c.created_at, GRANTS.c.id)
            .limit(CANDIDATES)
        )
        return await self._store.read(lambda connection: [_grant(row) for row in connection.execute(query)])

    async def read(self, grant_id: str) -> Grant | None:
        query = _ROWS.where(GRANTS.c.id == grant_id)

        def read(connection: Connection) -> Grant | None:
            row = connection.execute(query).first()
            return None if row is None else _grant(row)

        return await self._store.read(read)

    async def all(self, tenant: str, *, every: bool = False) -> list[Grant]:
        """Newest first. `every` includes expired, used up and revoked grants."""
        query = _ROWS.where(GRANTS.c.tenant == tenant).order_by(GRANTS.c.created_at.desc(), GRANTS.c.id)
        query = query if every else query.where(*_USABLE)
        grants = await self._store.read(lambda connection: [_grant(row) for row in connection.execute(query)])
        return [grant for grant in grants if grant is not None]

    async def state_of(self, tenant: str, tool: str) -> tuple[int, ...]:
        """The numbers change when a grant for `tool` is added, revoked, spent or expires."""
        usable = case((and_(*_USABLE), 1), else_=0)
        query = select(
            func.count(),
            func.coalesce(func.sum(usable), 0),
            func.coalesce(func.max(GRANTS.c.created_at), 0),
            func.count(GRANTS.c.revoked_at),
            func.coalesce(func.max(GRANTS.c.revoked_at), 0),
        ).where(GRANTS.c.tenant == tenant, GRANTS.c.tool == tool)
        return await self._store.read(lambda connection: tuple(int(each) for each in connection.execute(query).one()))

    async def revoke(self, grant_id: str, tenant: str, *, by: str, also: Also | None = None) -> Grant:
        """Revoking a grant again changes nothing. Writes `also` in the same transaction. Raises `NotFound`."""
        named = (GRANTS.c.id == grant_id) & (GRANTS.c.tenant == tenant)

        def mark(connection: Connection) -> Row[Any] | None:
            hold_grant(connection, grant_id)
            taken = update(GRANTS).where(named, GRANTS.c.revoked_at.is_(None))
            result = connection.execute(taken.values(revoked_at=StoreClock(), revoked_by=by))
            if result.rowcount and also is not None:
                also(connection)
            return connection.execute(_ROWS.where(named)).first()

        row = await self._store.run(mark)
        grant = None if row is None else _grant(row)
        if grant is None:
            raise worded(NotFound, Remark.of("no_grant.list", grant=f"`{grant_id[:40]}`"))
        return grant

    async def use(self, grant_id: str, ticket: str) -> bool:
        """Spend one use for a call that ends without a ticket, once for each key.

        Return False if none is left.
        """
        return await self._store.run(lambda connection: spend_grant(connection, grant_id, ticket))


def write_grant(
    connection: Connection,
    grant_id: str,
    verdict: Literal["approved", "denied"],
    like: GrantScope,
    wish: GrantRequest,
    *,
    people: tuple[str, ...],
    approval_id: str,
    requester: str,
    reason: str = "",
    since: datetime | None = None,
) -> bool:
    """Return whether the grant is new.

    An existing grant with this id is kept, even if revoked or used up. Expires `wish.seconds` after `since` or now,
    whichever is earlier.
    """
    now: int = connection.execute(select(StoreClock())).scalar_one()
    # Use the earlier time: neither a late write nor a fast clock may lengthen the grant.
    begin = time_from_millis(now) if since is None else min(time_from_millis(now), since)
    row = {
        "id": grant_id,
        "verdict": verdict,
        **like.model_dump(exclude={"where", "exact", "rule"}),
        "rule": "" if like.rule is None else canonical_json(like.rule.model_dump(mode="json")).decode(),
        "exact": like.exact,
        "predicate": like.where,
        "people": " ".join(people),
        "reason": reason,
        "approval_id": approval_id,
        "requester": requester,
        "uses": wish.uses,
        "created_at": now,
        "expires_at": _millis(begin + timedelta(seconds=wish.seconds)),
    }
    return insert_new(connection, GRANTS, row)


def masked_grant(grant: Grant) -> Grant:
    """Leaves out the digest, which would allow masked arguments to be guessed."""
    if not grant.like.exact:
        return grant
    return replace(grant, like=replace(grant.like, exact=_EXACT))


def _millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _grant(row: Row[Any]) -> Grant | None:
    """`None` if the row cannot be read: one bad row must not make all others fail."""
    try:
        return Grant(
            id=row.id,
            verdict=row.verdict,
            like=GrantScope(
                tenant=row.tenant,
                session=row.session,
                actor=row.actor,
                tool=row.tool,
                definition=row.definition,
                exact=row.exact,
                where=row.predicate,
                rule=RuleReference.model_validate_json(row.rule) if row.rule else None,
                policy_hash=row.policy_hash,
            ),
            people=tuple(row.people.split()),
            reason=row.reason,
            approval_id=row.approval_id,
            requester=row.requester,
            created_at=time_from_millis(row.created_at),
            expires_at=time_from_millis(row.expires_at),
            uses=row.uses,
            uses_left=row.uses_left,
            revoked_by=row.revoked_by or "",
            revoked_at=None if row.revoked_at is None else time_from_millis(row.revoked_at),
        )
    except ValidationError:
        _log.error("the remembered answer %r cannot be read", row.id)
        return None
