import asyncio
import base64
import hashlib
import json
import logging
import uuid
from pathlib import Path

import httpx2
import pytest
from failures import Failure
from temporalio.client import Client

from signoff.channels.channel_loader import KEY
from signoff.cli.local.gateway import running_gateway
from signoff.cli.local.installation import find_installation
from signoff.engine.turn_client import TurnClient
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import make_state_dir, working_store
from signoff.temporal.embedded_server import free_port
from signoff.testing.recording_channel import HEADER

MANIFEST = """\
version: 1
actors:
  desk: {model: scripted, description: Nothing much.}
channels:
  chat: {kind: signoff.testing.recording_channel}
  broken: {kind: signoff.testing.recording_channel, token: "env:NO_SUCH_VARIABLE"}
  nobody: {kind: carrier_pigeon}
routing: {default: [chat]}
"""


async def test_channels_of_a_manifest_run_with_the_gateway(
    client: Client, clean_env: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text(MANIFEST, encoding="utf-8")
    clean_env.setenv("SIGNOFF_PLUGINS", '["telegram", "gone:pager"]')
    place = find_installation(str(manifest), port=free_port())
    make_state_dir(place.settings)
    signoff = TurnClient(client, task_queue=f"nobody-{uuid.uuid4().hex[:12]}")
    with caplog.at_level(logging.WARNING):
        async with working_store(place.settings) as store, running_gateway(place, signoff, store):
            entries = [each.getMessage() for each in caplog.records if "does not run" in each.getMessage()]
            assert [line.partition(" does not run: ")[0] for line in entries] == [
                "channel `broken`",
                "channel `nobody`",
            ]
            assert "NO_SUCH_VARIABLE" in entries[0]
            assert "carrier_pigeon" in entries[1]
            told = "plugin `gone:pager` is not loaded: the distribution `gone` is not installed"
            assert told in [each.getMessage() for each in caplog.records]
            body = json.dumps({"key": "k", "identity": "mallory", "text": "yes"}).encode()
            mark = hashlib.sha256(await store.secret_key(f"{KEY}chat") + body).hexdigest()
            async with httpx2.AsyncClient(base_url=place.settings.public_url, timeout=60) as http:
                taken = await http.post("/channels/chat", content=body, headers={HEADER: mark})
                forged = await http.post("/channels/chat", content=body, headers={HEADER: mark[::-1]})
                absent = await http.post("/channels/broken", content=body, headers={HEADER: mark})
            assert [each.status_code for each in (taken, forged, absent)] == [200, 401, 404]
            async with asyncio.timeout(30):
                while True:
                    row = await InboundQueue(store).read("chat", "action", "k")
                    assert row is not None
                    if row.state == "done":
                        break
                    await asyncio.sleep(0.05)
            assert row.result == {"what": "stranger", "answered": True}


@pytest.mark.failure("channel ... does not run: ...")
async def test_incomplete_channel_runs_after_its_setting_is_added(
    client: Client, clean_env: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: Failure
) -> None:
    manifest = tmp_path / "signoff.yaml"
    lacking = 'kind: webhook, url: "https://ours.example.com", secret: "env:NO_SUCH_VARIABLE"'
    manifest.write_text(MANIFEST.replace("kind: carrier_pigeon", lacking), encoding="utf-8")
    signoff = TurnClient(client, task_queue=f"nobody-{uuid.uuid4().hex[:12]}")

    async def warned() -> str:
        caplog.clear()
        place = find_installation(str(manifest), port=free_port())
        make_state_dir(place.settings)
        with caplog.at_level(logging.WARNING):
            async with working_store(place.settings) as store, running_gateway(place, signoff, store):
                return "\n".join(each.getMessage() for each in caplog.records if "`nobody`" in each.getMessage())

    failure.assert_seen(await warned())
    failure.follow("Set the variable", "start the gateway again")
    clean_env.setenv("NO_SUCH_VARIABLE", f"whsec_{base64.b64encode(bytes(32)).decode()}")
    assert await warned() == ""
