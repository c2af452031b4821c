import asyncio
import dataclasses
import logging
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from failures import Failure
from hypothesis import given
from hypothesis import strategies as st
from served_stack import MANIFEST
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import ActivitySerializationContext, WorkflowSerializationContext
from temporalio.worker import Worker
from turn_fixtures import Ledger, catalog_of, no, pay_tool, running_turns, yes

import signoff
from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Principal
from signoff.engine.turn_list import closed_turns
from signoff.keys import encryption_keys
from signoff.keys.encryption_keys import (
    EncryptionKeyRing,
    EncryptionKeys,
    create_encryption_key,
    new_encryption_key,
)
from signoff.keys.secrets import SecretProvider
from signoff.registry.tool_result import ToolFailure
from signoff.settings import Settings
from signoff.store.store import Store, open_store
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server
from signoff.temporal.encryption import ENCODING, Encryption, EncryptionCodec, EncryptionKeyMissing
from signoff.testing.scripted_model import calls, respond

HERE = WorkflowSerializationContext(namespace="default", workflow_id="turn/main/a/b")
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'{"to": "Ana"}')


def ring_of(*keys: Any) -> EncryptionKeyRing:
    content = EncryptionKeys(keys=keys).model_dump_json()
    return EncryptionKeyRing("env:KEYS", SecretProvider(environment={"KEYS": content}))


async def codec_of(*keys: Any) -> EncryptionCodec:
    ring = ring_of(*keys)
    await ring.load()
    return EncryptionCodec(ring, "default").with_context(HERE)


async def test_payload_decrypts_in_its_own_workflow_only() -> None:
    """Moved to another workflow or namespace it stays encrypted, so that no converter misreads it."""
    codec = await codec_of(new_encryption_key(datetime.now(UTC)))
    (sealed,) = await codec.encode([PLAIN])
    assert sealed.metadata["encoding"] == ENCODING
    assert b"Ana" not in sealed.SerializeToString()
    assert await codec.decode([sealed]) == [PLAIN]
    activity = ActivitySerializationContext(
        namespace="default",
        activity_id="1",
        activity_type="pay",
        activity_task_queue="q",
        workflow_id=HERE.workflow_id,
        workflow_type="ActorTurn",
        is_local=False,
    )
    assert await codec.with_context(activity).decode([sealed]) == [PLAIN]
    for elsewhere in (
        WorkflowSerializationContext(namespace="default", workflow_id="turn/main/a/c"),
        WorkflowSerializationContext(namespace="other", workflow_id=HERE.workflow_id),
    ):
        assert await codec.with_context(elsewhere).decode([sealed]) == [sealed]


@given(st.data())
async def test_changed_payload_stays_encrypted(data: st.DataObject) -> None:
    codec = await codec_of(*(made := [new_encryption_key(datetime.now(UTC)) for _ in range(2)]))
    (sealed,) = await codec.encode([PLAIN])
    changed = bytearray(sealed.data)
    place = data.draw(st.integers(0, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    forged = Payload(metadata=sealed.metadata, data=bytes(changed))
    assert await codec.decode([forged]) == [forged]
    used = sealed.metadata["key"].decode()
    other = next(each.id for each in made if each.id != used)
    renamed = Payload(metadata={**sealed.metadata, "key": other.encode()}, data=sealed.data)
    assert await codec.decode([renamed]) == [renamed]


@given(st.binary(max_size=200), st.binary(max_size=20), st.binary(max_size=40))
async def test_arbitrary_bytes_do_not_raise(body: bytes, key: bytes, introduced: bytes) -> None:
    codec = await codec_of(new_encryption_key(datetime.now(UTC)))
    sent = Payload(metadata={"encoding": ENCODING, "key": key, "introduced": introduced}, data=body)
    assert await codec.decode([sent]) == [sent]


async def test_many_changed_payloads_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    codec = await codec_of(new_encryption_key(datetime.now(UTC)))
    (sealed,) = await codec.encode([PLAIN])
    changed = Payload(metadata=sealed.metadata, data=sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))
    moved = Payload(metadata=sealed.metadata, data=b"x" * 16 + sealed.data[16:])
    for number in range(50):
        strange = Payload(metadata={**sealed.metadata, "key": f"{number:08x}".encode()}, data=sealed.data)
        assert await codec.decode([changed, moved, strange]) == [changed, moved, strange]
    assert len(caplog.records) == 3


async def test_same_text_never_encrypts_to_the_same_bytes() -> None:
    codec = await codec_of(new_encryption_key(datetime.now(UTC)))
    one, other = await codec.encode([PLAIN, PLAIN])
    assert one.data[16:] != other.data[16:]


async def test_introduced_key_that_is_still_missing_is_waited_for() -> None:
    first = new_encryption_key(datetime.now(UTC) - timedelta(days=1))
    second = new_encryption_key(datetime.now(UTC) - timedelta(hours=1), [first])
    (sealed,) = await (await codec_of(first, second)).encode([PLAIN])
    assert sealed.metadata["key"].decode() == second.id
    with pytest.raises(EncryptionKeyMissing, match=second.id):
        await (await codec_of(first)).decode([sealed])
    strangers = await codec_of(new_encryption_key(datetime.now(UTC)))
    assert await strangers.decode([sealed]) == [sealed]


async def test_process_that_missed_several_keys_waits_for_the_last() -> None:
    """Left encrypted, a message would be lost. The others' file may no longer have old keys."""
    keys = [new_encryption_key(datetime.now(UTC) - timedelta(days=9))]
    for days in range(3):
        keys.append(new_encryption_key(datetime.now(UTC) - timedelta(days=8 - days), keys))
    (sealed,) = await (await codec_of(keys[-1])).encode([PLAIN])
    with pytest.raises(EncryptionKeyMissing, match=keys[-1].id):
        await (await codec_of(keys[0])).decode([sealed])


async def test_encrypted_data_stays_readable_after_encryption_is_turned_off() -> None:
    key = new_encryption_key(datetime.now(UTC))
    (sealed,) = await (await codec_of(key)).encode([PLAIN])
    ring = ring_of(key)
    await ring.load()
    off = Encryption(ring, writes=False).codec("default").with_context(HERE)
    assert await off.encode([PLAIN]) == [PLAIN]
    assert await off.decode([sealed, PLAIN]) == [PLAIN, PLAIN]


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[ServerHandle]:
    options = ServerOptions(tmp_path / "temporal.db", port=free_port(), ui_port=None)
    async with run_server(options) as handle:
        yield handle


WORDS = {
    "the request": "quartz-request",
    "an argument": "quartz-payee",
    "a result": "quartz-paid",
    "why it was denied": "quartz-reason",
    "why a tool failed": "quartz-failure",
    "an exception's words": "quartz-exception",
    "the answer": "quartz-answer",
    "who asked": "quartz-person",
}


async def test_servers_files_contain_no_text_of_a_turn(
    own_server: ServerHandle, store: Store, encryption: Encryption, task_queue: str, tmp_path: Path
) -> None:
    await play(await own_server.connect(encryption), store, f"{task_queue}-a")
    assert [what for what, word in WORDS.items() if word in files_of(tmp_path)] == []
    await play(await own_server.connect(), store, f"{task_queue}-b")
    # Otherwise the check might search in the wrong place.
    assert [what for what, word in WORDS.items() if word not in files_of(tmp_path)] == []


async def play(client: Client, store: Store, queue: str) -> None:
    ledger = Ledger()

    async def fails(args: Any, ctx: Any) -> Any:
        return ToolFailure(WORDS["why a tool failed"])

    async def raises(args: Any, ctx: Any) -> Any:
        raise RuntimeError(WORDS["an exception's words"])

    tools = [
        pay_tool(ledger, handler=ledger.handler("pay", WORDS["a result"])),
        pay_tool(ledger, False, name="fails", handler=fails),
        pay_tool(ledger, False, name="raises", handler=raises),
    ]
    args = {"amount": 1, "to": WORDS["an argument"]}
    script = [
        calls(("pay", args), ("fails", args), ("raises", args)),
        calls(("pay", args | {"amount": 2})),
        respond(WORDS["the answer"]),
    ]
    guest = Principal(user="guest", name=WORDS["who asked"])
    async with running_turns(client, store, queue, catalog_of(tools), script) as turns:
        key = await turns.start(WORDS["the request"], principal=guest)
        await turns.waiting(key)
        assert WORDS["an argument"] in (await turns.signoff.view(key)).model_dump_json()
        await turns.signoff.decide(yes(key))
        await turns.until(key, lambda view: any(each.call == "c2.1" and each.approval for each in view.calls))
        await turns.signoff.decide(no(key, "c2.1", reason=WORDS["why it was denied"]))
        result = await turns.signoff.result(key)
    assert [outcome.code for outcome in result.calls] == ["ok", "execution_failed", "execution_failed", "denied"]
    assert result.text == WORDS["the answer"]


def files_of(folder: Path) -> str:
    return "\n".join(each.read_bytes().decode("latin-1") for each in folder.glob("temporal*"))


@pytest.mark.failure("the encryption key ... is missing in ...")
async def test_worker_without_the_new_key_waits_for_it(
    server: ServerHandle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Failure,
) -> None:
    monkeypatch.setattr(encryption_keys, "_ASK_SECONDS", 0.05)
    theirs, ours = tmp_path / "worker.json", tmp_path / "gateway.json"
    create_encryption_key(theirs, datetime.now(UTC) - timedelta(days=1))
    ours.write_bytes(theirs.read_bytes())
    ours.chmod(0o600)
    ledger = Ledger()
    catalog = catalog_of([pay_tool(ledger)])
    script = [calls(("pay", {"amount": 1})), respond("done")]
    queue = f"keys-{uuid.uuid4().hex}"
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as store:
        worker = await server.connect(await encryption_in(theirs))
        async with running_turns(worker, store, queue, catalog, script) as turns:
            key = await turns.start()
            await turns.waiting(key)
            new = create_encryption_key(ours, datetime.now(UTC) - timedelta(hours=1))
            gateway = await server.connect(await encryption_in(ours))
            with caplog.at_level(logging.ERROR):
                handle = gateway.get_workflow_handle(key.workflow_id)
                body = yes(key).model_dump(mode="json", exclude_none=True)
                await handle.signal("approval_response", body)
                while new.id not in caplog.text:
                    await asyncio.sleep(0.05)
            assert ledger.rows == []
            failure.assert_seen(caplog.text)
            failure.follow("Copy the file of keys to it")
            theirs.write_bytes(ours.read_bytes())
            result = await turns.signoff.result(key)
            await turns.replays(key)
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def encryption_in(path: Path) -> Encryption:
    keys = EncryptionKeyRing(f"file:{path}", SecretProvider())
    await keys.load()
    return Encryption(keys)


def _app(settings: Settings) -> signoff.App:
    return signoff.App(manifest=settings.manifest, settings=settings)


async def test_custom_client_must_encrypt_if_the_installation_does(
    client: Client, plain_client: Client, tmp_path: Path
) -> None:
    """Otherwise a custom client would silently send plain text to Temporal."""
    settings = Settings(manifest=MANIFEST, state_dir=tmp_path, encryption=True)
    with pytest.raises(ConfigError, match="does not encrypt, and SIGNOFF_ENCRYPTION is on"):
        async with _app(settings).worker(plain_client):
            pass
    app = _app(settings).asgi(plain_client)
    with pytest.raises(ConfigError, match="does not encrypt, and SIGNOFF_ENCRYPTION is on"):
        async with app.router.lifespan_context(app):
            pass
    async with _app(settings).worker(client) as worker:
        assert worker.task_queue == settings.task_queue


async def test_plugin_makes_a_custom_client_encrypt(server: ServerHandle, tmp_path: Path) -> None:
    settings = Settings(manifest=MANIFEST, state_dir=tmp_path, encryption=True)
    async with _app(settings).plugin() as plugin:
        connected = await Client.connect(server.address, plugins=[plugin])
        assert isinstance(connected.data_converter.payload_codec, EncryptionCodec)
        own = await codec_of(new_encryption_key(datetime.now(UTC)))
        converter = dataclasses.replace(connected.data_converter, payload_codec=own)
        kept = await Client.connect(server.address, plugins=[plugin], data_converter=converter)
        assert kept.data_converter.payload_codec is own


async def test_plugin_refuses_a_worker_on_an_unencrypted_client(plain_client: Client, tmp_path: Path) -> None:
    """A plugin of the worker alone does not affect the client, and turns would be in plain text."""
    settings = Settings(manifest=MANIFEST, state_dir=tmp_path, encryption=True)
    async with _app(settings).plugin() as plugin:
        with pytest.raises(ConfigError, match="does not encrypt, and SIGNOFF_ENCRYPTION is on"):
            Worker(plain_client, task_queue="own", plugins=[plugin])


async def test_list_of_ended_turns_decrypts_nothing(
    client: Client, plain_client: Client, store: Store, task_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The list is read every two seconds: a gateway without keys would fill its log with unreadable memos."""
    since = datetime.now(UTC) - timedelta(minutes=1)
    async with running_turns(client, store, task_queue, catalog_of([]), [respond("done")]) as turns:
        key = await turns.start()
        await turns.signoff.result(key)
    found = None
    while found is None:
        rows = [row async for row in closed_turns(plain_client, since)]
        found = next((row for row in rows if row.workflow_id == key.workflow_id), None)
    assert (found.state, found.title) == ("complete", "")
    assert "memo" not in caplog.text
