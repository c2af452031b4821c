import asyncio
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from cli_kit import Cli, assert_one_sentence, waiting_request
from polling import pauses

STORE = Path(".signoff/signoff.db")


def now() -> str:
    return datetime.now(UTC).isoformat()


async def test_ended_turns_are_retired_and_open_ones_stay(served_cli: Cli) -> None:
    assert (await served_cli("keys", "create")).code == 0
    over = (await served_cli("ask", "pay 5", "--json")).data["turn"]
    waits = (await waiting_request(served_cli, "pay 70"))["turn"]
    # The turn answers before it records its end.
    for pause in pauses():
        before = now()
        ran = await served_cli("audit", "retire", "--before", before, "--json")
        assert ran.code == 0, ran.err
        if ran.data["turns"]:
            break
        await asyncio.sleep(pause)
    assert [turn.rpartition("/")[2] for turn in ran.data["turns"]] == [over]
    assert (await served_cli("audit", "verify")).code == 0
    shown = await served_cli("audit", "show", over)
    assert (shown.code, "records were retired, signed by key" in shown.out) == (0, True)
    assert "needs approval" in (await served_cli("audit", "show", waits)).out
    acts = (await served_cli("audit", "show", "admin/main", "--json")).data["records"]
    retired = next(facts for each in acts if (facts := json.loads(each["data"]))["act"] == "retire")
    assert (retired["turns"], bool(retired["account"])) == (1, True)
    # The gateway may have recorded the end of the turn since then.
    again = await served_cli("audit", "retire", "--before", before)
    assert again.out.startswith("0 turns retired, 0 records of before")


async def test_changed_audit_log_cannot_be_retired(served_cli: Cli) -> None:
    """Retirement would remove the traces of the change."""
    assert (await served_cli("keys", "create")).code == 0
    await served_cli("ask", "pay 5")
    with sqlite3.connect(STORE) as connection:
        connection.execute("UPDATE audit_records SET subject = 'eve' WHERE kind = 'execution'")
    connection.close()
    text = assert_one_sentence(await served_cli("audit", "retire", "--before", now()))
    assert "was changed after it was written: nothing was taken out, see `signoff audit verify`" in text


async def test_retire_needs_a_past_day_and_a_key(cli: Cli) -> None:
    assert (await cli("audit", "retire", "--before", "soon")).code == 2
    assert (await cli("audit", "retire", "--before", "2999-01-01")).code == 2
    assert "signoff keys create" in assert_one_sentence(await cli("audit", "retire", "--before", "2026-01-01"))


async def test_retire_needs_the_server(served_cli: Cli) -> None:
    assert (await served_cli("keys", "create")).code == 0
    text = assert_one_sentence(await served_cli("audit", "retire", "--before", now(), "--address", "127.0.0.1:1"))
    assert "127.0.0.1:1" in text
