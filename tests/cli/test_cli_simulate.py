import asyncio
from pathlib import Path
from typing import Any

from cli_kit import Cli, assert_one_sentence, waiting_request
from served_stack import MANIFEST, PROJECT

from signoff.audit.log import AuditLog
from signoff.store.store import open_store


def looser(folder: Path, limit: int) -> str:
    path = folder / f"upto-{limit}.yaml"
    path.write_text(MANIFEST.read_text().replace("args.amount < 10", f"args.amount < {limit}"))
    return str(path)


def by_handler(folder: Path) -> str:
    (folder / "cli_simulated_rules.py").write_text("def judge(call, context):\n    raise SystemExit('asked')\n")
    rule = "requires_approval:\n      handler: cli_simulated_rules:judge"
    path = folder / "handled.yaml"
    path.write_text(f"path: ['{folder}']\n{MANIFEST.read_text().replace('requires_approval:', rule, 1)}")
    return str(path)


async def ended(kind: str, at_least: int) -> None:
    async with open_store("sqlite:///.signoff/signoff.db") as store:
        while len([1 async for _ in AuditLog(store).records(kinds=[kind])]) < at_least:
            await asyncio.sleep(0.02)


def became(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["became"]: row["would"] for row in rows}


async def test_simulate_shows_denied_calls_that_a_policy_would_permit(
    served_cli: Cli, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.syspath_prepend(str(PROJECT))
    denied = await waiting_request(served_cli, "pay 70")
    await served_cli("deny", denied["id"], "--reason", "no", "--as", "ana")
    approved = await waiting_request(served_cli, "pay 80")
    await served_cli("approve", approved["id"], "--as", "ana")
    await served_cli("ask", "pay 5")
    await ended("ending", 2)
    ran = await served_cli("policy", "simulate", looser(tmp_path, 100), "--json")
    assert ran.code == 0, ran.err
    assert became(ran.data) == {"denied": "run", "approved": "run", "auto": "run"}
    words = (await served_cli("policy", "simulate", looser(tmp_path, 75))).out
    assert "not looked at: whether a tool was there" in words
    assert "1 that needed approval would run without it; 1 of these had been denied" in words
    assert [line.split()[-3:] for line in words.splitlines() if line.startswith("pay ")] == [["2", "1", "0"]]
    assert "denied by ana (not verified), would run by auto_approve_if" in words
    tighter = await served_cli("policy", "simulate", looser(tmp_path, 1), "--json")
    assert became(tighter.data) == {"denied": "ask", "approved": "ask", "auto": "ask"}
    assert "70" not in str([row["why"] for row in ran.data])
    handled = await served_cli("policy", "simulate", by_handler(tmp_path), "--json")
    assert became(handled.data) == {"denied": "unknown", "approved": "unknown", "auto": "unknown"}
    assert {row["why"] for row in handled.data} == {"its policy has a handler, which is asked only about present calls"}


async def test_simulate_needs_a_duration(served_cli: Cli) -> None:
    ran = await served_cli("policy", "simulate", str(MANIFEST), "--since", "ages")
    assert "is not a duration" in assert_one_sentence(ran)
