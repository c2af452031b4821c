"""Workers run our workflows without the sandbox, and the replay here runs them with it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from real_time import let_pass
from tables import table
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import PayloadCodec
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkerConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from turn_fixtures import Ledger, catalog_of, no, pay_tool, running_turns

from signoff.store.store import Store
from signoff.temporal import workflow_runner as runners
from signoff.temporal.converter import DATA_CONVERTER
from signoff.temporal.encryption import Encryption, EncryptionCodec
from signoff.testing.scripted_model import calls, respond
from signoff.worker import FencedRunner, SignoffPlugin, build_deps
from signoff.workflows.actor_turn import ActorTurn
from signoff.workflows.handler_run import HandlerRun
from signoff.workflows.session import Session

SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]


async def test_turn_does_nothing_that_the_sandbox_forbids(client: Client, store: Store, task_queue: str) -> None:
    async with running_turns(client, store, task_queue, catalog_of([pay_tool(Ledger())]), SCRIPT) as turns:
        key = await turns.start()
        await turns.waiting(key)
        await turns.signoff.decide(no(key))
        assert (await turns.signoff.result(key)).state == "complete"
    history = await client.get_workflow_handle(key.workflow_id).fetch_history()
    light = SandboxRestrictions.default.with_passthrough_modules("signoff.contracts", "signoff.approvals")
    replayer = Replayer(
        workflows=[ActorTurn],
        unsandboxed_workflow_runner=SandboxedWorkflowRunner(restrictions=light),
        data_converter=client.data_converter,
        namespace=client.namespace,
    )
    assert (await replayer.replay_workflow(history)).replay_failure is None


@table("kind", ActorTurn, Session, HandlerRun)
def test_our_workflows_use_no_sandbox(kind: type) -> None:
    """All their modules are shared, so the sandbox would check nothing and cost a twelfth of a worker's time."""
    assert not workflow._Definition.must_from_class(kind).sandboxed


class OwnCodec(PayloadCodec):
    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


class DerivedCodec(EncryptionCodec):
    """A modified subclass of our codec."""


@pytest.mark.parametrize(
    ("codec", "contexts"), [("none", "none"), ("our own", "workflow"), ("one made of it", "all"), ("another", "all")]
)
async def test_only_a_codec_makes_the_worker_pass_contexts(
    client: Client, store: Store, encryption: Encryption, codec: str, contexts: str
) -> None:
    codecs: dict[str, PayloadCodec | None] = {
        "none": None,
        "our own": encryption.codec("default"),
        "one made of it": DerivedCodec(encryption.keys, "default"),
        "another": OwnCodec(),
    }
    given = client.config()
    given["data_converter"] = dataclasses.replace(DATA_CONVERTER, payload_codec=codecs[codec])
    plugin = SignoffPlugin(await build_deps(catalog_of([], actors=[]), store))
    config = plugin.configure_worker(WorkerConfig(client=Client(**given), workflow_runner=SandboxedWorkflowRunner()))
    own, theirs = config["unsandboxed_workflow_runner"], config["workflow_runner"]
    assert isinstance(own, FencedRunner)
    assert isinstance(theirs, FencedRunner)
    assert own.contexts == theirs.contexts == contexts
    # Our workflows need no sandbox, and other workflows of the worker keep theirs.
    assert type(own.inner) is UnsandboxedWorkflowRunner
    assert type(theirs.inner) is SandboxedWorkflowRunner
    assert "signoff" in theirs.inner.restrictions.passthrough_modules


async def test_turn_that_waits_for_a_processor_is_not_interrupted(
    client: Client, store: Store, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, slow = runners._Watched._follow, [True]

    def followed(self: Any, act: Any) -> Any:
        if slow:
            slow.clear()
            let_pass(3, "the SDK breaks a workflow off after two seconds of the machine's clock")
        return real(self, act)

    monkeypatch.setattr(runners._Watched, "_follow", followed)
    async with running_turns(client, store, task_queue, catalog_of([]), [respond("hello")]) as turns:
        key = await turns.start()
        assert (await turns.signoff.result(key)).state == "complete"
        assert "WORKFLOW_TASK_FAILED" not in await turns.events(key)
    assert not slow
