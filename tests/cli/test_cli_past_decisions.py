import asyncio
import csv
import io
import json

from cli_kit import Cli, waiting_request
from polling import pauses

PIN = "4711-very-secret"


async def test_decided_requests_are_listed_searched_and_exported(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 2345")
    assert "2345" not in (await served_cli("decisions", "list", "2345")).out
    assert (await served_cli("approve", card["code"])).code == 0

    for pause in pauses():
        if (await served_cli("decisions", "list", "2345", "--json")).data["count"]:
            break
        await asyncio.sleep(pause)
    listed = await served_cli("decisions", "list", "2345", "--scope", "mine", "--state", "approved")
    assert (listed.code, listed.err) == (0, "")
    assert "Pay 2345 EUR to Ana" in listed.out
    assert "1 in all" in listed.out
    assert (await served_cli("decisions", "list", "2345", "--until", "2020-01-01")).out.strip() == "no such requests"
    (row,) = csv.DictReader(io.StringIO((await served_cli("decisions", "export", "2345")).out))
    assert (row["id"], row["state"], row["decided_by"]) == (card["id"], "approved", "approver")
    lines = (await served_cli("decisions", "export", "2345", "--format", "jsonl")).out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [card["id"]]
    assert PIN not in listed.out + "".join(lines)


async def test_day_that_is_none_is_refused_in_one_sentence(cli: Cli) -> None:
    refused = await cli("decisions", "list", "--since", "soon")
    assert refused.code == 2
    assert "`soon` is no day or time" in refused.err
