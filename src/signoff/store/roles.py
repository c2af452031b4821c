"""Declares the rights of a worker's and a gateway's database role on each table.

A worker's database credential alone does not let an attacker answer, create grants, lift a freeze or read sign-in
secrets. SQLite has no roles.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

from sqlalchemy import Table

from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace
from signoff.store.tables import (
    ABSENCES,
    ANSWERS,
    ARRIVALS,
    AUDIT_CHECKPOINTS,
    AUDIT_HEADS,
    AUDIT_RECORDS,
    BLOB_SESSIONS,
    BLOBS,
    CALL_JOINS,
    COMPLETIONS,
    CONTACTS,
    COUNTED_ACTS,
    DELIVERIES,
    EVENT_DELIVERIES,
    EVENT_FACTS,
    EVENT_HEADS,
    EVENT_SOURCES,
    EVENTS,
    FOOTERS,
    FREEZES,
    GRANT_USES,
    GRANTS,
    KEYS,
    METADATA,
    OPENED_VALUES,
    OWN_MESSAGES,
    PASSKEY_CHALLENGES,
    PASSKEYS,
    PAST_REQUESTS,
    PEOPLE,
    PROBES,
    PUSH_SUBSCRIPTIONS,
    QUESTION_READERS,
    QUESTIONS,
    RAW_ANSWERS,
    RAW_RECEIPTS,
    READINGS,
    REFUSALS,
    REQUEST_MESSAGES,
    RESTORATIONS,
    SESSIONS,
    SIGN_IN_LINKS,
    SUBSCRIPTIONS,
    TAKEN_REQUESTS,
    TICKETS,
    TOKENS,
    UNINDEXED_REQUESTS,
    USES,
)

ProcessRole = Literal["worker", "gateway"]
StoreRole = Literal["owner", "worker", "gateway"]
"""The role of a process's connection.

`owner` creates and changes the tables and may do everything.
"""
PROCESS_ROLES: Final[tuple[ProcessRole, ...]] = get_args(ProcessRole)
WORKER_KEYS: Final = ("card-mark", "content", "rest", "store-id")
"""The secrets that a worker reads.

They belong to marks on cards, content seals, handles of long results, and the store's id.
"""
EVERY_ROW: Final = "true"
_VERBS: Final = ("select", "insert", "update", "delete")


class Rights(FrozenModel):
    """The rights of a role on a table. Default: none."""

    select: bool = False
    insert: bool = False
    update: frozenset[str] = frozenset()
    """The columns that the role may change."""
    delete: bool = False
    rows: str = EVERY_ROW
    """An SQL condition for rows that the role reads, changes or deletes.

    It must also hold after a change.
    """
    added: str = EVERY_ROW
    """An SQL condition for rows that the role inserts."""
    changed: str = EVERY_ROW
    """An additional SQL condition for rows that the role changes or deletes."""

    @property
    def verbs(self) -> "Rights":
        """Return these rights without conditions."""
        return replace(self, rows=EVERY_ROW, added=EVERY_ROW, changed=EVERY_ROW)

    def is_within(self, other: "Rights") -> bool:
        """Ignores conditions on rows."""
        flags = ((self.select, other.select), (self.insert, other.insert), (self.delete, other.delete))
        return all(has <= may for has, may in flags) and self.update <= other.update


def _only(table: Table, *names: str) -> frozenset[str]:
    return frozenset(table.c[name].name for name in names)


def _columns(table: Table) -> frozenset[str]:
    return frozenset(column.name for column in table.columns)


def _not_key(table: Table) -> frozenset[str]:
    return _columns(table) - {column.name for column in table.primary_key}


NOTHING: Final = Rights()
_READ: Final = Rights(select=True)
_ADD: Final = Rights(select=True, insert=True)
_COUNTS: Final = Rights(select=True, insert=True, update=_only(REFUSALS, "number"), delete=True)
_KEEP: Final = Rights(select=True, insert=True, update=_only(BLOB_SESSIONS, "kept_at"))
_PROBE: Final = Rights(select=True, insert=True, update=_only(PROBES, "at"))
_END: Final = _only(QUESTIONS, "ended_at", "ended_as", "settled_at")
# An end is set once. If it could be removed, a call could run that was withdrawn after its approval.
_NOT_ENDED: Final = "ended_at IS NULL"
_NO_CHAIN: Final = "stream <> 'checkpoints'"

_WORKER: Final = {
    BLOBS: _ADD,
    BLOB_SESSIONS: _KEEP,
    # Rows are locked before they are dropped. PostgreSQL requires the right to change a column for that.
    COMPLETIONS: Rights(select=True, insert=True, update=_only(COMPLETIONS, "kept_at"), delete=True),
    QUESTIONS: Rights(select=True, insert=True, update=_END, added="asked_at IS NULL", changed=_NOT_ENDED),
    QUESTION_READERS: Rights(insert=True),
    # A done ticket stays done, so that nothing runs twice, unless its outcome is unknown.
    TICKETS: Rights(
        select=True,
        insert=True,
        update=_not_key(TICKETS),
        changed="state <> 'done' OR CAST(outcome AS json) ->> 'code' = 'in_doubt'",
    ),
    USES: Rights(select=True, insert=True, update=_only(USES, "returned_at"), delete=True),
    GRANT_USES: _ADD,
    ANSWERS: _READ,
    # A worker speaks for the agent alone.
    REQUEST_MESSAGES: Rights(select=True, insert=True, added="author = 'agent'"),
    # The gateway processes raw answers. A worker can only read their receipts.
    RAW_ANSWERS: _ADD,
    RAW_RECEIPTS: _READ,
    GRANTS: _READ,
    FREEZES: _READ,
    PEOPLE: _READ,
    # An answer holds the signed passkey of its proof.
    PASSKEYS: NOTHING,
    PASSKEY_CHALLENGES: NOTHING,
    KEYS: Rights(select=True, rows=f"name IN ({', '.join(repr(name) for name in WORKER_KEYS)})"),
    TOKENS: NOTHING,
    SESSIONS: NOTHING,
    SIGN_IN_LINKS: NOTHING,
    # Only the gateway sends cards.
    ABSENCES: NOTHING,
    # A worker could name another person as busy with a request.
    TAKEN_REQUESTS: NOTHING,
    DELIVERIES: NOTHING,
    ARRIVALS: NOTHING,
    FOOTERS: NOTHING,
    OWN_MESSAGES: NOTHING,
    CONTACTS: NOTHING,
    PUSH_SUBSCRIPTIONS: NOTHING,
    # Otherwise a worker could claim that a person has opened values that they have not.
    OPENED_VALUES: NOTHING,
    # A worker could hide decisions from people, or show others to them. A trigger names changed requests.
    PAST_REQUESTS: NOTHING,
    UNINDEXED_REQUESTS: NOTHING,
    # The chain of checkpoints belongs to the gateway: if its head were moved, the next checkpoint would name a missing
    # one. A worker also must not claim that checkpoints cover its records or that events were made of them.
    AUDIT_HEADS: Rights(
        select=True,
        insert=True,
        update=_only(AUDIT_HEADS, "seq", "hash"),
        rows=_NO_CHAIN,
        added=f"{_NO_CHAIN} AND covered = 0 AND numbered = 0",
    ),
    # Only the gateway may record admin actions (sign-ins, freezes, new tokens) and removals.
    AUDIT_RECORDS: Rights(select=True, insert=True, added="kind NOT IN ('admin', 'retired')"),
    AUDIT_CHECKPOINTS: _READ,
    # The gateway makes events from the audit log. With these rights a worker could announce answers that never existed.
    EVENT_HEADS: NOTHING,
    EVENTS: NOTHING,
    # Written together with their record.
    EVENT_FACTS: _ADD,
    EVENT_SOURCES: NOTHING,
    # A handler's input is read where it runs, so that the starter of its workflow cannot forge it.
    EVENT_DELIVERIES: _READ,
    SUBSCRIPTIONS: NOTHING,
    REFUSALS: _COUNTS,
    # If it were removed, calls that may have run before a restore would run again without a question.
    RESTORATIONS: _READ,
    # Only the gateway counts the turns that a tenant starts and the messages that it is sent.
    COUNTED_ACTS: NOTHING,
    # Only the gateway maps proposals to calls.
    CALL_JOINS: NOTHING,
    # A worker cannot read the queues that they count.
    READINGS: NOTHING,
    PROBES: _PROBE,
}

_GATEWAY: Final = {
    BLOBS: _ADD,
    BLOB_SESSIONS: _KEEP,
    COMPLETIONS: NOTHING,
    # Workers move no deadline.
    QUESTIONS: Rights(select=True, update=_END | _only(QUESTIONS, "asked_at", "last_at"), changed=_NOT_ENDED),
    QUESTION_READERS: _ADD,
    TICKETS: _READ,
    USES: _READ,
    GRANT_USES: _READ,
    ANSWERS: Rights(select=True, insert=True, update=_only(ANSWERS, "handed_at", "voided_at")),
    REQUEST_MESSAGES: Rights(select=True, insert=True, added="author = 'approver'"),
    RAW_ANSWERS: _READ,
    RAW_RECEIPTS: _ADD,
    GRANTS: Rights(select=True, insert=True, update=_only(GRANTS, "revoked_by", "revoked_at")),
    FREEZES: Rights(select=True, insert=True, delete=True),
    ABSENCES: Rights(select=True, insert=True, delete=True),
    TAKEN_REQUESTS: Rights(select=True, insert=True, delete=True),
    PEOPLE: Rights(select=True, insert=True, update=_columns(PEOPLE), delete=True),
    PASSKEYS: Rights(select=True, insert=True, update=_only(PASSKEYS, "counter", "used_at")),
    PASSKEY_CHALLENGES: Rights(select=True, insert=True, delete=True),
    KEYS: _ADD,
    TOKENS: Rights(select=True, insert=True, update=_only(TOKENS, "used_at", "revoked_at")),
    SESSIONS: Rights(select=True, insert=True, delete=True),
    SIGN_IN_LINKS: Rights(select=True, insert=True, delete=True),
    DELIVERIES: Rights(select=True, insert=True, update=_not_key(DELIVERIES), delete=True),
    ARRIVALS: Rights(select=True, insert=True, update=_not_key(ARRIVALS), delete=True),
    OWN_MESSAGES: Rights(select=True, insert=True, update=_not_key(OWN_MESSAGES), delete=True),
    CONTACTS: Rights(select=True, insert=True, update=_not_key(CONTACTS), delete=True),
    PUSH_SUBSCRIPTIONS: Rights(select=True, insert=True, delete=True),
    FOOTERS: Rights(select=True, insert=True, update=_only(FOOTERS, "known_at"), delete=True),
    OPENED_VALUES: Rights(select=True, insert=True, delete=True),
    PAST_REQUESTS: Rights(select=True, insert=True, delete=True),
    UNINDEXED_REQUESTS: Rights(select=True, update=_only(UNINDEXED_REQUESTS, "due_at"), delete=True),
    AUDIT_HEADS: Rights(select=True, insert=True, update=_not_key(AUDIT_HEADS)),
    # Old turns are removed whole, under a record signed by the gateway's key (`signoff audit retire`).
    AUDIT_RECORDS: Rights(select=True, insert=True, delete=True),
    AUDIT_CHECKPOINTS: _ADD,
    EVENT_HEADS: Rights(select=True, insert=True, update=_only(EVENT_HEADS, "number")),
    EVENTS: Rights(select=True, insert=True, delete=True),
    EVENT_FACTS: Rights(select=True, insert=True, delete=True),
    EVENT_SOURCES: Rights(select=True, insert=True, update=_only(EVENT_SOURCES, "moment")),
    EVENT_DELIVERIES: Rights(select=True, insert=True, update=_not_key(EVENT_DELIVERIES), delete=True),
    SUBSCRIPTIONS: Rights(select=True, insert=True, update=_only(SUBSCRIPTIONS, "number")),
    REFUSALS: _COUNTS,
    COUNTED_ACTS: Rights(select=True, insert=True, delete=True),
    CALL_JOINS: Rights(select=True, insert=True, delete=True),
    RESTORATIONS: _READ,
    READINGS: Rights(select=True, insert=True, update=_not_key(READINGS)),
    PROBES: _PROBE,
}

RIGHTS: Final[Mapping[ProcessRole, Mapping[str, Rights]]] = MappingProxyType(
    {
        "worker": MappingProxyType({table.name: rights for table, rights in _WORKER.items()}),
        "gateway": MappingProxyType({table.name: rights for table, rights in _GATEWAY.items()}),
    }
)
"""Rights by role and table. Only the owner may use tables missing here."""


def readable_tables(role: StoreRole) -> list[Table]:
    every = METADATA.sorted_tables
    return every if role == "owner" else [table for table in every if RIGHTS[role].get(table.name, NOTHING).select]


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def statements(names: Mapping[ProcessRole, str], *, schema: str, database: str, version_table: str) -> list[str]:
    """Return the SQL that gives the roles `names` exactly their rights, and PUBLIC none.

    It may run repeatedly, in one transaction, because it first revokes and then grants.
    """
    both = ", ".join(quote_identifier(names[role]) for role in PROCESS_ROLES)
    where = quote_identifier(schema)
    commands = [
        f"REVOKE CREATE, TEMPORARY ON DATABASE {quote_identifier(database)} FROM PUBLIC, {both}",
        f"GRANT CONNECT ON DATABASE {quote_identifier(database)} TO {both}",
        f"REVOKE CREATE ON SCHEMA {where} FROM PUBLIC, {both}",
        f"GRANT USAGE ON SCHEMA {where} TO {both}",
        f"REVOKE ALL ON TABLE {where}.{quote_identifier(version_table)} FROM PUBLIC, {both}",
        f"GRANT SELECT ON TABLE {where}.{quote_identifier(version_table)} TO {both}",
    ]
    for table in sorted({name for rights in RIGHTS.values() for name in rights}):
        place = f"{where}.{quote_identifier(table)}"
        commands.append(f"REVOKE ALL ON TABLE {place} FROM PUBLIC, {both}")
        for role in PROCESS_ROLES:
            commands += _grants(RIGHTS[role].get(table, NOTHING), place, quote_identifier(names[role]))
        commands += _policies(table, place, names)
    return commands


def _grants(rights: Rights, place: str, name: str) -> list[str]:
    verbs = [verb.upper() for verb in ("select", "insert", "delete") if getattr(rights, verb)]
    if rights.update:
        verbs.append(f"UPDATE ({', '.join(quote_identifier(column) for column in sorted(rights.update))})")
    return [f"GRANT {', '.join(verbs)} ON TABLE {place} TO {name}"] if verbs else []


def _policies(table: str, place: str, names: Mapping[ProcessRole, str]) -> list[str]:
    """Empty if both roles may access all rows."""
    by_role = {role: RIGHTS[role].get(table, NOTHING) for role in PROCESS_ROLES}
    if all(rights == rights.verbs for rights in by_role.values()):
        return []
    commands = [f"ALTER TABLE {place} ENABLE ROW LEVEL SECURITY"]
    for role, rights in by_role.items():
        for verb in _VERBS:
            policy = f"signoff_{role}_{verb}"
            commands.append(f"DROP POLICY IF EXISTS {policy} ON {place}")
            if getattr(rights, verb):
                which = _condition(rights, verb)
                commands.append(
                    f"CREATE POLICY {policy} ON {place} FOR {verb.upper()} TO {quote_identifier(names[role])} {which}"
                )
    return commands


def _condition(rights: Rights, verb: str) -> str:
    if verb == "insert":
        return f"WITH CHECK ({rights.added})"
    if verb == "select":
        return f"USING ({rights.rows})"
    using = f"USING (({rights.rows}) AND ({rights.changed}))"
    # Without WITH CHECK, the changed row would also have to meet `changed`.
    return f"{using} WITH CHECK ({rights.rows})" if verb == "update" else using
