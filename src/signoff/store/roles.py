"""Declares what each of the two database roles, a worker's and a gateway's, may do with each table.

Data and SQL, no connection.

A worker that is taken over has its database credential. With it alone it cannot answer, remember, lift a freeze, or
read what signs people in: nothing here lets it. On SQLite there are no roles.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

from sqlalchemy import Table

from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace
from signoff.store.tables import (
    ANSWERS,
    ARRIVALS,
    AUDIT_CHECKPOINTS,
    AUDIT_HEADS,
    AUDIT_RECORDS,
    BLOB_SESSIONS,
    BLOBS,
    CALL_JOINS,
    COMPLETIONS,
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
    PEOPLE,
    PROBES,
    QUESTIONS,
    RAW_ANSWERS,
    RAW_RECEIPTS,
    REFUSALS,
    RESTORATIONS,
    SESSIONS,
    SUBSCRIPTIONS,
    TICKETS,
    TOKENS,
    USES,
)

ProcessRole = Literal["worker", "gateway"]
StoreRole = Literal["owner", "worker", "gateway"]
"""As whom a process is connected: `owner` makes and changes the tables, and may do everything."""
PROCESS_ROLES: Final[tuple[ProcessRole, ...]] = get_args(ProcessRole)
WORKER_KEYS: Final = ("card-mark", "content", "rest", "store-id")
"""The secrets that a worker reads: of the marks on cards, of the handles of long results, and of the store's id."""
EVERY_ROW: Final = "true"
_VERBS: Final = ("select", "insert", "update", "delete")


class Rights(FrozenModel):
    """What a role may do with a table; nothing unless stated."""

    select: bool = False
    """Whether the role reads rows."""
    insert: bool = False
    """Whether the role inserts rows."""
    update: frozenset[str] = frozenset()
    """The columns that the role changes."""
    delete: bool = False
    """Whether the role deletes rows."""
    rows: str = EVERY_ROW
    """An SQL condition for the rows that the role reads, changes and deletes, and for their values afterwards."""
    added: str = EVERY_ROW
    """An SQL condition for the rows that the role inserts."""
    changed: str = EVERY_ROW
    """One more SQL condition for the rows that the role changes or deletes."""

    @property
    def verbs(self) -> "Rights":
        """Returns the same rights without conditions, as the database's own list of rights has none."""
        return replace(self, rows=EVERY_ROW, added=EVERY_ROW, changed=EVERY_ROW)

    def is_within(self, other: "Rights") -> bool:
        """Returns whether `other` allows all of this, the conditions on rows left aside."""
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
# An ending is set once: taken away, a call that was withdrawn after its approval could run.
_NOT_ENDED: Final = "ended_at IS NULL"
_NO_CHAIN: Final = "stream <> 'checkpoints'"

_WORKER: Final = {
    BLOBS: _ADD,
    BLOB_SESSIONS: _KEEP,
    # Rows are locked before they are dropped, which PostgreSQL lets only those do who may change a column of them.
    COMPLETIONS: Rights(select=True, insert=True, update=_only(COMPLETIONS, "kept_at"), delete=True),
    QUESTIONS: Rights(select=True, insert=True, update=_END, changed=_NOT_ENDED),
    # What is done stays done, so that nothing runs a second time, but for an outcome of which nobody knew.
    TICKETS: Rights(
        select=True,
        insert=True,
        update=_not_key(TICKETS),
        changed="state <> 'done' OR CAST(outcome AS json) ->> 'code' = 'in_doubt'",
    ),
    USES: Rights(select=True, insert=True, update=_only(USES, "returned_at"), delete=True),
    GRANT_USES: _ADD,
    ANSWERS: _READ,
    # What the gateway makes of a raw answer, a worker only reads.
    RAW_ANSWERS: _ADD,
    RAW_RECEIPTS: _READ,
    GRANTS: _READ,
    FREEZES: _READ,
    PEOPLE: _READ,
    KEYS: Rights(select=True, rows=f"name IN ({', '.join(repr(name) for name in WORKER_KEYS)})"),
    TOKENS: NOTHING,
    SESSIONS: NOTHING,
    DELIVERIES: NOTHING,
    ARRIVALS: NOTHING,
    FOOTERS: NOTHING,
    OWN_MESSAGES: NOTHING,
    # Else a worker could say that somebody has read what they have not.
    OPENED_VALUES: NOTHING,
    # The chain of checkpoints is the gateway's: with its head moved, the next one would name none that there is.
    # Nor does a worker say that the checkpoints cover what it wrote, or that events were made of it.
    AUDIT_HEADS: Rights(
        select=True,
        insert=True,
        update=_only(AUDIT_HEADS, "seq", "hash"),
        rows=_NO_CHAIN,
        added=f"{_NO_CHAIN} AND covered = 0 AND numbered = 0",
    ),
    # What people did at the gateway (signing in, freezing, making tokens), and what was taken out, is its word alone.
    AUDIT_RECORDS: Rights(select=True, insert=True, added="kind NOT IN ('admin', 'retired')"),
    AUDIT_CHECKPOINTS: _READ,
    # Made of the record by the gateway: with these a worker could tell of answers that nobody gave.
    EVENT_HEADS: NOTHING,
    EVENTS: NOTHING,
    # Written with the record that they belong to.
    EVENT_FACTS: _ADD,
    EVENT_SOURCES: NOTHING,
    # What a handler is given is read where it runs: whoever starts that cannot say it.
    EVENT_DELIVERIES: _READ,
    SUBSCRIPTIONS: NOTHING,
    REFUSALS: _COUNTS,
    # Taken back, what may have run before a restoration would run without a question.
    RESTORATIONS: _READ,
    # What a tenant begins and is sent is the gateway's to count.
    COUNTED_ACTS: NOTHING,
    # Whose proposal is which call, the gateway says.
    CALL_JOINS: NOTHING,
    PROBES: _PROBE,
}

_GATEWAY: Final = {
    BLOBS: _ADD,
    BLOB_SESSIONS: _KEEP,
    COMPLETIONS: NOTHING,
    QUESTIONS: Rights(select=True, update=_END, changed=_NOT_ENDED),
    TICKETS: _READ,
    USES: _READ,
    GRANT_USES: _READ,
    ANSWERS: Rights(select=True, insert=True, update=_only(ANSWERS, "handed_at", "voided_at")),
    RAW_ANSWERS: _READ,
    RAW_RECEIPTS: _ADD,
    GRANTS: Rights(select=True, insert=True, update=_only(GRANTS, "revoked_by", "revoked_at")),
    FREEZES: Rights(select=True, insert=True, delete=True),
    PEOPLE: Rights(select=True, insert=True, update=_columns(PEOPLE), delete=True),
    KEYS: _ADD,
    TOKENS: Rights(select=True, insert=True, update=_only(TOKENS, "used_at", "revoked_at")),
    SESSIONS: Rights(select=True, insert=True, delete=True),
    DELIVERIES: Rights(select=True, insert=True, update=_not_key(DELIVERIES), delete=True),
    ARRIVALS: Rights(select=True, insert=True, update=_not_key(ARRIVALS), delete=True),
    OWN_MESSAGES: Rights(select=True, insert=True, update=_not_key(OWN_MESSAGES), delete=True),
    FOOTERS: Rights(select=True, insert=True, update=_only(FOOTERS, "known_at"), delete=True),
    OPENED_VALUES: Rights(select=True, insert=True, delete=True),
    AUDIT_HEADS: Rights(select=True, insert=True, update=_not_key(AUDIT_HEADS)),
    # Old turns are taken out whole, under a record that its key signs (`signoff audit retire`).
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
    PROBES: _PROBE,
}

RIGHTS: Final[Mapping[ProcessRole, Mapping[str, Rights]]] = MappingProxyType(
    {
        "worker": MappingProxyType({table.name: rights for table, rights in _WORKER.items()}),
        "gateway": MappingProxyType({table.name: rights for table, rights in _GATEWAY.items()}),
    }
)
"""Role -> table -> rights. A table that is missing here is one that nobody but the owner may use."""


def readable_tables(role: StoreRole) -> list[Table]:
    """Returns the tables that a role may read."""
    every = METADATA.sorted_tables
    return every if role == "owner" else [table for table in every if RIGHTS[role].get(table.name, NOTHING).select]


def quote_identifier(name: str) -> str:
    """Quotes a name as an identifier in PostgreSQL's SQL, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def statements(names: Mapping[ProcessRole, str], *, schema: str, database: str, version_table: str) -> list[str]:
    """Returns the SQL that gives the roles `names` exactly their rights, and the public none; it may be executed again.

    All of it belongs into one transaction, as it first revokes and then grants.
    """
    both = ", ".join(quote_identifier(names[role]) for role in PROCESS_ROLES)
    where = quote_identifier(schema)
    made = [
        f"REVOKE CREATE, TEMPORARY ON DATABASE {quote_identifier(database)} FROM PUBLIC, {both}",
        f"GRANT CONNECT ON DATABASE {quote_identifier(database)} TO {both}",
        f"REVOKE CREATE ON SCHEMA {where} FROM PUBLIC, {both}",
        f"GRANT USAGE ON SCHEMA {where} TO {both}",
        f"REVOKE ALL ON TABLE {where}.{quote_identifier(version_table)} FROM PUBLIC, {both}",
        f"GRANT SELECT ON TABLE {where}.{quote_identifier(version_table)} TO {both}",
    ]
    for table in sorted({name for rights in RIGHTS.values() for name in rights}):
        place = f"{where}.{quote_identifier(table)}"
        made.append(f"REVOKE ALL ON TABLE {place} FROM PUBLIC, {both}")
        for role in PROCESS_ROLES:
            made += _grants(RIGHTS[role].get(table, NOTHING), place, quote_identifier(names[role]))
        made += _policies(table, place, names)
    return made


def _grants(rights: Rights, place: str, name: str) -> list[str]:
    verbs = [verb.upper() for verb in ("select", "insert", "delete") if getattr(rights, verb)]
    if rights.update:
        verbs.append(f"UPDATE ({', '.join(quote_identifier(column) for column in sorted(rights.update))})")
    return [f"GRANT {', '.join(verbs)} ON TABLE {place} TO {name}"] if verbs else []


def _policies(table: str, place: str, names: Mapping[ProcessRole, str]) -> list[str]:
    """Returns the SQL of a table's row policies; none where both roles may see all rows."""
    found = {role: RIGHTS[role].get(table, NOTHING) for role in PROCESS_ROLES}
    if all(rights == rights.verbs for rights in found.values()):
        return []
    made = [f"ALTER TABLE {place} ENABLE ROW LEVEL SECURITY"]
    for role, rights in found.items():
        for verb in _VERBS:
            policy = f"signoff_{role}_{verb}"
            made.append(f"DROP POLICY IF EXISTS {policy} ON {place}")
            if getattr(rights, verb):
                which = _condition(rights, verb)
                made.append(
                    f"CREATE POLICY {policy} ON {place} FOR {verb.upper()} TO {quote_identifier(names[role])} {which}"
                )
    return made


def _condition(rights: Rights, verb: str) -> str:
    if verb == "insert":
        return f"WITH CHECK ({rights.added})"
    if verb == "select":
        return f"USING ({rights.rows})"
    found = f"USING (({rights.rows}) AND ({rights.changed}))"
    # Left out, what a change makes of a row would have to be such a row again.
    return f"{found} WITH CHECK ({rights.rows})" if verb == "update" else found
