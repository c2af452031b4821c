import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from audit_kit import tamper, verified
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.audit.config_snapshots import NAMES_SHOWN, follow_people, note_catalog, note_people
from signoff.audit.log import AuditLog
from signoff.audit.timeline import timeline
from signoff.contracts.errors import Unavailable
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.people.directory import FixedDirectory
from signoff.people.people_file import FileDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.store.store import Store

ANA = Person(id="ana", roles=("finance",))
BO = Person(id="bo")


async def summary(store: Store, tenant: str = "main") -> list[dict[str, Any]]:
    return [record.facts for record in await AuditLog(store).stream(f"admin/{tenant}")]


def names(facts: dict[str, Any]) -> tuple[Sequence[str], ...]:
    return tuple(facts.get(each, []) for each in ("added", "removed", "changed"))


async def test_changed_people_are_recorded(store: Store) -> None:
    first, second = FixedDirectory([ANA, BO]), FixedDirectory([replace(ANA, roles=()), Person(id="cy")])
    seen = [await note_people(store, people, "gateway") for people in (first, first, second, second, first)]
    assert seen == [True, False, True, False, True]
    begin, change, back = await summary(store)
    assert (begin["count"], "before" in begin, names(begin)) == (2, False, ([], [], []))
    assert names(change) == (["cy"], ["bo"], ["ana"])
    assert (change["before"], change["after"]) == (begin["after"], back["before"])
    assert back["after"] == begin["after"]
    assert "finance" not in str(await summary(store))
    words = timeline(await AuditLog(store).stream("admin/main"))[1].what
    assert words == f"people in force at gateway: 2 by hash {change['after'][:8]} (added cy; removed bo; changed ana)"


async def test_each_process_is_compared_with_itself(store: Store) -> None:
    for _ in range(2):
        await note_people(store, FixedDirectory([ANA]), "gateway")
        await note_people(store, FixedDirectory([BO]), "worker q")
    assert [facts["where"] for facts in await summary(store)] == ["gateway", "worker q"]


async def test_tenants_have_separate_streams(store: Store) -> None:
    zoe = Person(id="zoe", tenant="acme")
    await note_people(store, FixedDirectory([ANA, zoe]), "gateway")
    await note_people(store, FixedDirectory([ANA]), "gateway")
    assert len(await summary(store)) == 1
    assert [names(facts) for facts in await summary(store, "acme")] == [([], [], []), ([], ["zoe"], [])]


async def test_concurrent_processes_record_a_change_once(store: Store) -> None:
    people = FixedDirectory([ANA])
    seen = await asyncio.gather(*(note_people(store, people, "gateway") for _ in range(10)))
    assert seen.count(True) == len(await summary(store)) == 1


async def test_names_above_the_limit_are_counted(store: Store) -> None:
    await note_people(store, FixedDirectory([ANA]), "gateway")
    await note_people(store, FixedDirectory([Person(id=f"p{number:04}") for number in range(1_000)]), "gateway")
    assert (len((await summary(store))[1]["added"]), (await summary(store))[1]["count"]) == (NAMES_SHOWN, 1_000)


async def test_changed_file_is_recorded_while_a_process_runs(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "people.yaml"
    file.write_text("- id: ana\n")
    ticks = iter(range(1_000_000))
    people = FileDirectory(file, clock=lambda: float(next(ticks)))
    async with follow_people(store, people, "worker q", every=0.01):
        assert len(await summary(store)) == 1
        file.write_text("- id: ana\n- id: [\n")
        await asyncio.sleep(0.05)
        file.write_text("- id: ana\n- id: bo\n")
        async with asyncio.timeout(60):
            while len(await summary(store)) < 2:
                await asyncio.sleep(0.01)
    assert names((await summary(store))[1]) == (["bo"], [], [])


async def test_failed_record_is_written_later(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    class Away(FixedDirectory):
        """Fails twice."""

        __slots__ = ("left",)

        def all(self, tenant: str | None = None) -> tuple[Person, ...]:
            self.left: int = getattr(self, "left", 2) - 1
            if self.left >= 0:
                raise Unavailable("the directory is away") if self.left else ZeroDivisionError
            return super().all(tenant)

    with caplog.at_level(logging.WARNING):
        async with follow_people(store, Away([ANA]), "gateway", every=0.01), asyncio.timeout(60):
            while not await summary(store):
                await asyncio.sleep(0.01)
    assert [message for message in caplog.messages if "the directory is away" in message]
    assert [message for message in caplog.messages if "ZeroDivisionError" in message]


async def test_changed_policies_of_a_worker_are_recorded_by_hash(store: Store, ledger: Ledger) -> None:
    strict = catalog_of([pay_tool(ledger), pay_tool(ledger, name="refund")])
    loose = catalog_of([pay_tool(ledger, ApprovalPolicy(auto_approve_if="args.amount < 5.0"))])
    seen = [await note_catalog(store, catalog, "worker q") for catalog in (strict, strict, loose)]
    assert seen == [True, False, True]
    begin, change = await summary(store)
    assert (begin["catalog"], change["catalog"]) == (strict.hash, loose.hash)
    assert names(change)[1:] == (["policy refund", "tool refund"], ["catalog", "policy pay"])


async def test_altered_entry_does_not_stop_a_worker_from_starting(store: Store, store_url: str) -> None:
    catalog = catalog_of([pay_tool(Ledger())])
    await note_catalog(store, catalog, "worker q")
    await tamper(store_url, "UPDATE audit_records SET data = ''")
    await AuditLog(store).append([])
    assert await note_catalog(store, catalog, "worker q") is False
    assert (await verified(store)).finding is not None
