from datetime import UTC, datetime
from io import StringIO

from gateway_rig import PEOPLE, GatewayRig, rig_catalog, turn_of
from rich.console import Console
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.channels.card_text import card_words
from signoff.channels.envelopes import OutboundCard
from signoff.cli.terminal.card_lines import card_lines
from signoff.contracts.approval import ApprovalRequest
from signoff.texts.formatter import Formatter

WORDS = "The tool pay is no longer declared here."


def in_terminal(request: ApprovalRequest) -> str:
    shown = Console(width=300, record=True, file=StringIO())
    shown.print(card_lines(request, datetime.now(UTC)))
    return shown.export_text()


def on_channel(request: ApprovalRequest) -> str:
    sent = OutboundCard(token="t", request=request, person=PEOPLE[0], address="a", link="https://x.example/1")
    return card_words(sent, Formatter("en", UTC, datetime.now(UTC)), how="link").note


async def test_card_and_turn_report_a_removed_tool_and_accept_answers(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    named = turn_of(approval)
    without = catalog_of(
        [pay_tool(Ledger(), name="look")], actors=list(rig_catalog(Ledger()).actors.values()), people=PEOPLE
    )
    other = gateway.beside(catalog=without)
    async with other.http as http:
        turn = ".".join(named)
        for page in (f"/approvals/{approval}", f"/turns/{turn}"):
            for client, expected in ((http, True), (gateway.http, False)):
                assert (WORDS in (await client.get(page)).text) is expected, page
        known, unknown = await gateway.request(approval), await other.request(approval)
        for write in (in_terminal, on_channel):
            assert (WORDS in write(known), WORDS in write(unknown)) == (False, True)
        answer = await http.post(f"/v1/approvals/{approval}/decide", json={"verdict": "approved", "revision": 1})
    # The gateway's catalog may be of another deploy: the worker has the tool and runs it.
    assert answer.json()["status"] == "accepted", answer.text
    assert [each.code for each in (await gateway.turns.signoff.result(named)).calls] == ["ok"]
