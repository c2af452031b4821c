import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from signoff.audit.checkpoints import Checkpoint, Checkpoints
from signoff.audit.log import AuditLog
from signoff.audit.verifier import VerificationReport, verify, with_heads
from signoff.contracts.audit import AuditEntry
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.store.store import Store

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
TURN = "turn/main/s1/t1"
OTHER = "turn/main/s1/t2"
SIGNER = Signer(PrivateKeys(keys=(new_key(AT - timedelta(days=36_500)),)))
"""Created long before any test, so that it signs at any clock time."""


def entry(number: int, stream: str = TURN, **data: Any) -> AuditEntry:
    return AuditEntry(
        stream=stream,
        key=f"k{number}",
        kind="attempt",
        at=AT + timedelta(seconds=number),
        tenant="main",
        subject="anna",
        data={"number": number, **data},
    )


async def filled(store: Store, *streams: str, each: int = 5) -> AuditLog:
    log = AuditLog(store)
    for stream in streams or (TURN, OTHER):
        await log.append(entry(number, stream) for number in range(1, each + 1))
    return log


async def verified(store: Store, signer: Signer = SIGNER, kept: Checkpoint | None = None) -> VerificationReport:
    points = Checkpoints(store)
    heads = await points.heads()
    report = await verify(AuditLog(store).records(), points.all(), signer.verifier(), heads=heads, kept=kept)
    return with_heads(report, await points.heads())


async def tamper(url: str, *statements: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
        return
    admin = await asyncpg.connect(url)
    for statement in statements:
        await admin.execute(statement)
    await admin.close()


def numbers(records: Iterable[Any]) -> list[int]:
    return [record.seq for record in records]
