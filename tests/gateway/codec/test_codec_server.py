import asyncio
import base64
import contextlib
import dataclasses
import json
import threading
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from failures import Failure
from gateway_login import STRANGER, bearer, token_of
from gateway_rig import BUSY, PASSWORD, PEOPLE, GatewayRig, http_of
from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payload, Payloads

from signoff.audit.log import AuditLog
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.gateway.app import build_codec_app
from signoff.gateway.codec import routes
from signoff.gateway.transport.server import serve
from signoff.people.directory import FixedDirectory
from signoff.registry.catalog import Catalog
from signoff.settings import Settings
from signoff.temporal.embedded_server import ServerHandle, find_temporal, free_port
from signoff.temporal.encryption import Encryption, is_encrypted

UI = "https://temporal.example.com"
BASE = "http://127.0.0.1:8301"
ROLES = {"ada": ("admin",), "aud": ("auditor",), "ana": ("approvers",)}
PROVED = (*PEOPLE, STRANGER, *(Person(id=name, roles=roles) for name, roles in ROLES.items() if name != "ana"))


@pytest.fixture
async def codec(gateway: GatewayRig, encryption: Encryption) -> AsyncIterator[GatewayRig]:
    deps = dataclasses.replace(
        gateway.deps,
        people=FixedDirectory((*PROVED, Person(id="eve", tenant="acme", roles=("admin", "auditor")))),
        settings=Settings(profile="production", public_url=BASE),
        signer=None,
    )
    app = build_codec_app(deps, encryption.codec("default"), [UI])
    async with http_of(app) as http:
        yield dataclasses.replace(gateway, http=http, app=app, deps=deps)


async def history_of(gateway: GatewayRig, key: TurnKey) -> list[Any]:
    history = await gateway.turns.client.get_workflow_handle(key.workflow_id).fetch_history()
    found = Payloads()

    def gather(message: Any) -> None:
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                values = [each for each in value.values() if hasattr(each, "ListFields")]
            else:
                values = list(value) if field.is_repeated else [value]
            for each in values:
                if each.DESCRIPTOR.full_name == "temporal.api.common.v1.Payload":
                    found.payloads.append(each)
                else:
                    gather(each)

    for event in history.events:
        gather(event)
    assert any(is_encrypted(each) for each in found.payloads)
    rows: list[Any] = MessageToDict(found)["payloads"]
    return rows


def plain(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return "\n".join(base64.b64decode(each.get("data", "")).decode("latin-1") for each in answer.json()["payloads"])


async def ask(codec: GatewayRig, person: str, payloads: Any, **more: Any) -> httpx2.Response:
    token = await token_of(codec, person, tenant=more.pop("tenant", "main"))
    return await codec.http.post("/decode", json={"payloads": payloads}, headers=bearer(token) | more)


async def test_auditor_reads_a_history_without_its_secrets(gateway: GatewayRig, codec: GatewayRig) -> None:
    key = await gateway.start("login")
    await gateway.turns.waiting(key)
    sent = await history_of(gateway, key)
    assert "example.com" not in json.dumps(sent)
    shown = plain(await ask(codec, "aud", sent, **{"x-namespace": "default"}))
    assert '"site":"https://example.com"' in shown
    assert "hidden, 13 characters" in shown
    assert PASSWORD not in shown
    last = [each async for each in AuditLog(codec.deps.store).records(kinds=("admin",))][-1]
    assert (last.subject, last.facts["act"], last.facts["payloads"]) == ("aud", "payloads decrypted", len(sent))
    assert len(last.facts["workflows"]) == 1


async def test_every_decrypted_workflow_is_recorded(gateway: GatewayRig, codec: GatewayRig) -> None:
    sent = [each for each in await history_of(gateway, await gateway.start("pay")) if data_of(each)][-1]
    made_up = [
        sent | {"data": base64.b64encode(number.to_bytes(16, "big") + data_of(sent)[16:]).decode()}
        for number in range(120)
    ]
    assert (await ask(codec, "aud", [*made_up, sent])).status_code == 200
    last = [each async for each in AuditLog(codec.deps.store).records(kinds=("admin",))][-3:]
    named = [each for entry in last for each in entry.facts["workflows"]]
    assert {entry.facts["payloads"] for entry in last} == {121}
    assert len(named) == 121
    assert data_of(sent)[:16].hex() in named


async def test_masking_runs_outside_the_event_loop(
    gateway: GatewayRig, codec: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine, threads = routes.mask_payloads, list[int]()

    def noted(payloads: Sequence[Payload], catalog: Catalog) -> list[Payload]:
        threads.append(threading.get_ident())
        return genuine(payloads, catalog)

    monkeypatch.setattr(routes, "mask_payloads", noted)
    assert (await ask(codec, "aud", await history_of(gateway, await gateway.start("pay")))).status_code == 200
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def data_of(payload: Any) -> bytes:
    return base64.b64decode(payload.get("data", ""))


@pytest.mark.parametrize(
    ("person", "tenant", "status"),
    [("ada", "main", 200), ("aud", "main", 200), ("ana", "main", 403), ("guest", "main", 403), ("eve", "acme", 403)],
)
async def test_only_operators_and_auditors_of_the_installation_decrypt(
    gateway: GatewayRig, codec: GatewayRig, person: str, tenant: str, status: int
) -> None:
    """A payload does not show its tenant, so people of another tenant could read all payloads."""
    sent = await history_of(gateway, await gateway.start("pay"))
    answer = await ask(codec, person, sent, tenant=tenant)
    assert answer.status_code == status
    assert ("payloads" in answer.json()) == (status == 200)


async def test_decryption_needs_a_token(gateway: GatewayRig, codec: GatewayRig) -> None:
    sent = {"payloads": await history_of(gateway, await gateway.start("pay"))}
    for path in ("/decode", "/encode", "/any/path/decode"):
        for headers in ({}, bearer("sgf_wrong"), {"cookie": f"signoff_session={'0' * 64}"}):
            assert (await codec.http.post(path, json=sent, headers=headers)).status_code == 401


async def test_decryption_fails_if_it_cannot_be_recorded(
    gateway: GatewayRig, codec: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = await history_of(gateway, await gateway.start("pay"))

    async def away(log: AuditLog, entries: Any) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(AuditLog, "append", away)
    answer = await ask(codec, "ada", sent)
    assert (answer.status_code, answer.json()) == (503, {"code": "unavailable", "message": "the store is away"})


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"7", b'{"payloads": 7}', b'{"else": []}', b"[" * 100_000],
)
async def test_malformed_codec_request_is_refused_in_one_sentence(codec: GatewayRig, body: bytes) -> None:
    headers = bearer(await token_of(codec, "ada")) | {"content-type": "application/json"}
    answer = await codec.http.post("/decode", content=body, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["message"].startswith(("a request is the JSON of payloads", "the body is "))


async def test_foreign_namespace_is_refused_by_name(codec: GatewayRig) -> None:
    answer = await ask(codec, "ada", [], **{"x-namespace": "other"})
    assert answer.status_code == 422
    assert "`default` alone" in answer.json()["message"]


async def test_too_many_payloads_are_refused(codec: GatewayRig) -> None:
    answer = await ask(codec, "ada", [{}] * 2_001)
    assert answer.status_code == 422
    assert "2000" in answer.json()["message"]


async def test_payload_encrypted_by_the_codec_server_is_decrypted_again(
    codec: GatewayRig, encryption: Encryption
) -> None:
    token = await token_of(codec, "ada")
    sent = {"metadata": {"encoding": base64.b64encode(b"json/plain").decode()}, "data": "eyJhIjogMX0="}
    answer = await codec.http.post("/x/encode", json={"payloads": [sent]}, headers=bearer(token))
    (made,) = answer.json()["payloads"]
    assert made["data"] != sent["data"]
    assert plain(await ask(codec, "ada", [made])) == '{"a":1}'


async def test_payload_with_an_unknown_key_stays_encrypted(gateway: GatewayRig, codec: GatewayRig) -> None:
    key = await gateway.start("pay")
    await gateway.turns.waiting(key)
    sent = await history_of(gateway, key)
    strange = {**sent[0], "metadata": {**sent[0]["metadata"], "key": base64.b64encode(b"00000000").decode()}}
    answer = await ask(codec, "ada", [strange, *sent])
    assert answer.json()["payloads"][0] == strange
    assert "420" in plain(answer)


async def test_cross_origin_requests_are_allowed_for_temporals_ui_only(codec: GatewayRig) -> None:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-namespace"}
    allowed = await codec.http.options("/decode", headers={"origin": UI, **asks})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == UI
    assert allowed.headers["access-control-allow-credentials"] == "true"
    strange = await codec.http.options("/decode", headers={"origin": "https://evil.example", **asks})
    assert "access-control-allow-origin" not in strange.headers
    token = bearer(await token_of(codec, "ada"))
    for origin, status in ((UI, 200), ("https://evil.example", 403), ("null", 403)):
        headers = token | {"origin": origin, "sec-fetch-site": "cross-site"}
        answer = await codec.http.post("/decode", json={"payloads": []}, headers=headers)
        assert answer.status_code == status, origin
        assert answer.headers.get("access-control-allow-origin", "") == (UI if status == 200 else "")


async def test_codec_server_answers_only_under_its_own_host(codec: GatewayRig) -> None:
    token = bearer(await token_of(codec, "ada"))
    answer = await codec.http.post("/decode", json={"payloads": []}, headers=token | {"host": "evil.example"})
    assert answer.status_code == 421


@contextlib.asynccontextmanager
async def served(codec: GatewayRig) -> AsyncIterator[str]:
    port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(serve(codec.app, "127.0.0.1", port, stop=stop, ready=ready.set))
    await ready.wait()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        await running


async def test_temporal_command_line_reads_through_the_codec_server(
    gateway: GatewayRig, codec: GatewayRig, server: ServerHandle
) -> None:
    word = uuid.uuid4().hex
    key = await gateway.start(f"hello {word}")
    await gateway.turns.signoff.result(key)
    token = await token_of(codec, "aud")
    async with served(codec) as url:
        given = ("--codec-endpoint", url, "--codec-auth", f"Bearer {token}")
        assert word in await shown(server, key, *given)
        assert word not in await shown(server, key)


@pytest.mark.failure("Encoded failure")
async def test_failure_text_is_decrypted_by_the_codec_server(
    gateway: GatewayRig, codec: GatewayRig, server: ServerHandle, failure: Failure
) -> None:
    key = await gateway.start(BUSY)
    await gateway.turns.until(key, lambda view: view.model_retry is not None)
    first = await shown(server, key, command="describe")
    failure.assert_seen(first)
    failure.follow("signoff codec", "--codec-endpoint", "encodedAttributes")
    async with served(codec) as url:
        given = ("--codec-endpoint", url, "--codec-auth", f"Bearer {await token_of(codec, 'aud')}")
        read = await shown(server, key, *given, command="describe")
    await gateway.turns.signoff.cancel_turn(key)
    assert ("answered 503" in first, "answered 503" in read) == (False, True)


async def shown(server: ServerHandle, key: TurnKey, *options: str, command: str = "show") -> str:
    program = find_temporal()
    process = await asyncio.create_subprocess_exec(
        *(str(program), "workflow", command, "--address", server.address, "--workflow-id", key.workflow_id),
        *(("--detailed",) if command == "show" else ()),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output.decode()
