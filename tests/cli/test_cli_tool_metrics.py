import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence

from signoff.audit.log import AuditLog
from signoff.contracts.audit import AuditEntry
from signoff.store.store import open_store

STORE = Path(".signoff/signoff.db")


def run_of(number: int, code: str, milliseconds: int, *, days: int = 0, tenant: str = "main") -> AuditEntry:
    return AuditEntry(
        stream=f"turn/{tenant}/s/t{number}",
        key="outcome",
        kind="outcome",
        at=datetime.now(UTC) - timedelta(days=days),
        tenant=tenant,
        data={"tool": "pay", "code": code, "duration_ms": milliseconds, "cost": 0.5},
    )


@pytest.fixture
async def metered(cli: Cli, clean_env: pytest.MonkeyPatch) -> Cli:
    async def write() -> None:
        STORE.parent.mkdir(exist_ok=True)
        runs = [run_of(1, "ok", 10), run_of(2, "execution_failed", 30), run_of(3, "ok", 500, days=40)]
        async with open_store(f"sqlite:///{STORE}") as store:
            await AuditLog(store).append([*runs, run_of(4, "ok", 20, tenant="acme")])

    await asyncio.to_thread(lambda: asyncio.run(write()))
    return cli


@pytest.mark.row("F21")
async def test_each_tool_is_shown_with_its_failures_and_times(metered: Cli) -> None:
    ran = await metered("tools", "metrics")
    assert ran.code == 0, ran.err
    assert ran.out.split("\n")[1].split("  ")[0] == "pay"
    assert "1 execution_failed" in ran.out
    [found] = (await metered("tools", "metrics", "--tenant", "main", "--json")).data
    assert (found["runs"], found["ok"], found["mean_ms"], found["longest_ms"], found["cost"]) == (2, 1, 20.0, 30, 1.0)
    [older] = (await metered("tools", "metrics", "--tenant", "main", "--since", "60d", "--json")).data
    assert older["runs"] == 3


async def test_metrics_without_a_run_are_empty(metered: Cli) -> None:
    assert "nothing ran" in (await metered("tools", "metrics", "--tenant", "nobody")).out
    message = assert_one_sentence(await metered("tools", "metrics", "--since", "soon"))
    assert "--since: `soon` is not a duration" in message
