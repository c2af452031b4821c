import json
import subprocess
from asyncio import to_thread
from typing import Any

from app_server import running_app
from call_rig import CallRig, approval_of
from documents import ROOT, blocks_below, headings, shell_lines
from tables import table

from signoff.temporal.embedded_server import free_port

PAGE = ROOT / "docs" / "external-calls.md"
COPIED_LINES = 10
"""Maximum lines that a reader copies for one agent."""


@table("agent", *headings(PAGE, "Your agent"))
def test_copied_setup_of_an_agent_is_short(agent: str) -> None:
    texts = blocks_below(PAGE, agent)
    assert texts
    for text in texts:
        copied = [line for line in text.splitlines() if line.strip() and not line.startswith("# examples/")]
        assert len(copied) <= COPIED_LINES


async def test_documented_curl_commands_reach_an_outcome(agent: CallRig) -> None:
    lines = [line for line in shell_lines(PAGE) if line.startswith("curl")]
    port = free_port()
    async with running_app(agent.rig.app, port):

        async def run(line: str, call: str = "") -> dict[str, Any]:
            # Without a token, as in development with two declared agents. The page has one agent and its token.
            own = line.replace("-H 'authorization: Bearer TOKEN'", "").replace("/ID", f"/{call}")
            own = own.replace("127.0.0.1:8300", f"127.0.0.1:{port}").replace('{"tool"', '{"agent": "coder", "tool"')
            own = own.replace(f"/{call}?wait=30", f"/{call}?wait=30&agent=coder") if call else own
            for verb in ("use", "outcome"):
                own = own.replace(f"/{verb} ", f"/{verb}?agent=coder ")
            shell = f"{own} -H 'host: 127.0.0.1:8300'"
            done = await to_thread(subprocess.run, shell, shell=True, capture_output=True, check=True)
            found: dict[str, Any] = json.loads(done.stdout)
            return found

        proposed = await run(lines[0])
        assert proposed.get("state") == "waiting", proposed
        assert (await agent.decide(proposed["id"])).json()["status"] == "accepted"
        assert (await run(lines[1], proposed["id"]))["state"] == "permitted"
        assert (await run(lines[2], proposed["id"]))["args"] == {"order": "A7", "euro": 200}
        ended = await run(lines[3], proposed["id"])
    assert (ended["state"], ended["code"], ended["result"]) == ("ended", "ok", "refunded")
    assert (await agent.rig.request(approval_of(proposed["id"]))).agent_says == "charged twice"
