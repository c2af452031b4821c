import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli_kit import Cli, Ran, run_in_thread
from documents import ROOT, shell_lines
from served_stack import gateway_alone, worker_alone

from signoff.contracts.ids import show_code
from signoff.temporal.embedded_server import ServerHandle

CODE = "K7Q-2FM"


def documented() -> list[list[str]]:
    lines = [shlex.split(line, comments=True)[1:] for line in shell_lines(ROOT / "docs" / "approvals.md")]
    first = next(at for at, words in enumerate(lines) if words[0] == "ask")
    last = next(at for at, words in enumerate(lines) if words[:2] == ["audit", "show"])
    return lines[first : last + 1]


@pytest.fixture
async def payables(
    clean_env: pytest.MonkeyPatch, tmp_path: Path, server: ServerHandle, task_queue: str
) -> AsyncIterator[Cli]:
    clean_env.setenv("PAYMENTS_DB", str(tmp_path / "payments.db"))
    manifest = ROOT / "examples" / "payments" / "signoff.yaml"
    async with gateway_alone(clean_env, server, task_queue, manifest), worker_alone(server, task_queue):
        yield run_in_thread


async def waiting(cli: Cli, turn: str) -> str:
    async with asyncio.timeout(60):
        while True:
            for card in (await cli("inbox", "--as", "ana", "--json")).data:
                if card["turn"] == turn:
                    return str(card["code"])
            await asyncio.sleep(0.1)


async def test_documented_walkthrough_has_the_documented_result(payables: Cli) -> None:
    ask, *commands = documented()
    asked = await payables(*ask, "--json")
    turn = asked.data["turn"]
    code = await waiting(payables, turn)
    ran: list[Ran] = []
    for words in commands:
        if words[:2] == ["audit", "show"]:
            assert (await payables("watch", turn)).code == 0
        ran.append(await payables(*({CODE: code, "$TURN": turn}.get(word, word) for word in words)))
        assert (ran[-1].code, ran[-1].err) == (0, ""), words
    inbox, card, first, changed, second, record = (each.out for each in ran)
    assert show_code(code) in inbox
    assert "Pay 9400" in card
    assert "1 of 2" in first
    assert "Amount: 9400 -> 7400" in changed
    assert "1 of 2" in changed
    assert second.startswith("approved: Pay 7400")
    assert "answered approved for bo" in record
    assert "revision 2 of the request for" in record
    assert "none changed or missing" in record
