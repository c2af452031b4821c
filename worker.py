"""Wires one catalog into one Temporal worker."""

import asyncio
import dataclasses
import gc
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final, TypedDict

from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    PollerBehaviorAutoscaling,
    Worker,
    WorkerConfig,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from signoff import policypool
from signoff.activities.answers_activity import AnswersActivity
from signoff.activities.call_journal import RecordActivity
from signoff.activities.caller_check import CallerInterceptor
from signoff.activities.capability_backends import built_in_backends
from signoff.activities.gate_activity import GateActivity
from signoff.activities.identify_activity import IdentifyActivity
from signoff.activities.model_activity import ModelActivity
from signoff.activities.models.drivers import build_drivers
from signoff.activities.outcome_activity import OutcomeActivity
from signoff.activities.reply_sweep import ReplySweep
from signoff.activities.store_identity import StoreInterceptor
from signoff.activities.tool_activity import tool_activities
from signoff.activities.worker_deps import Profile, Room
from signoff.contracts import names
from signoff.contracts.errors import ConfigError
from signoff.keys.secrets import SecretProvider
from signoff.keys.signatures import Verifier
from signoff.people.directory import Directory
from signoff.registry.capabilities import Backend
from signoff.registry.catalog import Catalog
from signoff.store.store import Store
from signoff.temporal.converter import DATA_CONVERTER
from signoff.temporal.query_fence import Looks, LooksInterceptor
from signoff.temporal.workflow_runner import WatchedBridge, WatchedRunner
from signoff.workflows.actor_turn import ActorTurn
from signoff.workflows.session import Session

PASSED_THROUGH = ("signoff",)
"""What workflow instances share instead of loading it anew, `ActorTurn`'s own module included: it holds no state.

Loaded anew, our own modules cost 3.3 ms of each turn; shared, 0.2 ms. `tests/test_sandbox.py` runs turns with
nothing of `workflows/` shared, so that the sandbox still sees what a workflow may not do.
"""

_MARK_KEY = "card-mark"


async def furnish(
    catalog: Catalog,
    store: Store,
    *,
    people: Directory | None = None,
    profile: Profile = "development",
    model: str = "",
    verifier: Verifier | None = None,
    backends: Mapping[str, Backend] | None = None,
    secrets: SecretProvider | None = None,
) -> Room:
    """What the activities of a worker share; `model` answers for scripted models instead of their scripts.

    `verifier` checks what the gateway signed; without one no signature is believed. `backends` are for the capabilities
    that tools declare, by kind; left out, those that need no setting up. `secrets` reads secrets; left out, one without
    a source of one's own. Raises `ConfigError` for a model that has no driver, for a backend of `secrets`, and in the
    production profile without a verifier that knows a key.
    """
    policypool.install()
    verifier, secrets = verifier or Verifier(), secrets or SecretProvider()
    if profile == "production" and not verifier.key_ids:
        raise ConfigError(
            "a worker of the production profile checks signatures, and it has no public keys: take those that "
            "`signoff keys export` writes where the gateway is, and name them in SIGNOFF_PUBLIC_KEYS",
            field="public_keys",
        )
    if backends and "secrets" in backends:
        # A second way would be one whose secrets nobody hides.
        raise ConfigError("secrets come from the provider: give `secrets` in place of a backend", field="backends")
    return Room(
        catalog=catalog,
        store=store,
        people=people or catalog.people,
        drivers=await build_drivers(catalog, secrets, instead=model),
        # A card shows its digest under this key: the bare one would let a masked argument be guessed by trying.
        mark_key=await store.secret_key(_MARK_KEY),
        profile=profile,
        verifier=verifier,
        backends=built_in_backends() if backends is None else backends,
        secrets=secrets,
    )


class SignoffPlugin(SimplePlugin):
    """Everything Signoff adds to a Temporal worker: workflow, activities, converter, sandbox."""

    def __init__(self, room: Room) -> None:
        self._looks = Looks()
        self._sweep = ReplySweep(room.store)
        super().__init__(
            "signoff.SignoffPlugin",
            data_converter=DATA_CONVERTER,
            workflows=[ActorTurn, Session],
            activities=[
                ModelActivity(room).model,
                GateActivity(room).gate,
                RecordActivity(room).record,
                IdentifyActivity(room).identify,
                AnswersActivity(room).answers,
                OutcomeActivity(room).outcome,
                *tool_activities(room),
            ],
            workflow_runner=_share,
            interceptors=[LooksInterceptor(self._looks), CallerInterceptor(), StoreInterceptor(room.store.id)],
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See `SimplePlugin`; chooses the quicker sandbox where nothing needs the other."""
        config = super().configure_worker(config)
        runner, client = config.get("workflow_runner"), config.get("client")
        if runner is not None and client is not None:
            # The very class: of somebody else's runner nobody here knows what its contexts are good for.
            plain = type(runner) is SandboxedWorkflowRunner and not _wants_contexts(client)
            config["workflow_runner"] = WatchedRunner(runner, self._looks, contextless=plain)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """See `SimplePlugin`; stands between the worker and the SDK's core, and drops old replies meanwhile."""
        worker._bridge_worker = WatchedBridge(worker._bridge_worker, self._looks)
        sweeping = asyncio.create_task(self._sweep.run())
        try:
            await super().run_worker(worker, next)
        finally:
            sweeping.cancel()
            # Its store may be closed as soon as the worker has stopped.
            await asyncio.wait({sweeping})


DEADLOCK_SECONDS: Final = 8
"""After so long a workflow that does not yield is broken off; the server gives a task 10 s.

The SDK, which has no option for it, takes 2 s. On a busy machine a turn waits as long for a processor alone, and
breaking it off in the middle makes the SDK's core lose sight of the local activities that it has begun.
"""


class WorkerOptions(TypedDict):
    """What a worker of ours is told beside what it runs."""

    max_cached_workflows: int
    graceful_shutdown_timeout: timedelta
    workflow_task_poller_behavior: PollerBehaviorAutoscaling
    activity_task_poller_behavior: PollerBehaviorAutoscaling


def worker_options(max_cached_workflows: int = 5_000) -> WorkerOptions:
    """The options of every worker. No failure types: a bug in workflow code stalls its turns and never fails them."""
    return WorkerOptions(
        # A turn that is kept while it waits costs some 70 kB; any other is read anew from its history once answered.
        # With no place left the SDK (1.35) may lose a run that is asked several times at once: see operations.md.
        max_cached_workflows=max_cached_workflows,
        # The SDK's own is zero: each deploy would cancel the tools that run.
        graceful_shutdown_timeout=timedelta(seconds=30),
        # The SDK's own leaves one poller to runs that are not kept: of 30 at once the slowest took twice as long.
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
    )


def quicken() -> None:
    """Set this process up for running a worker; call it once everything is imported.

    What was imported stays, so no collection need look at it again.
    """
    # First: what is garbage now would be frozen too, and never be freed.
    gc.collect()
    gc.freeze()


def build_worker(
    client: Client, room: Room, *, task_queue: str = names.DEFAULT_TASK_QUEUE, max_cached_workflows: int = 5_000
) -> Worker:
    """A worker for one catalog; run it with `async with` or `run()`."""
    plugins = [SignoffPlugin(room)]
    worker = Worker(client, task_queue=task_queue, plugins=plugins, **worker_options(max_cached_workflows))
    if worker._workflow_worker is not None:
        worker._workflow_worker._deadlock_timeout_seconds = DEADLOCK_SECONDS
    return worker


def _share(runner: WorkflowRunner | None) -> WorkflowRunner:
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner or SandboxedWorkflowRunner()
    # Added to what an embedder's own sandbox lets through, which stays.
    return dataclasses.replace(runner, restrictions=runner.restrictions.with_passthrough_modules(*PASSED_THROUGH))


def _wants_contexts(client: Client) -> bool:
    converter = client.data_converter
    return converter.payload_codec is not None or converter.external_storage is not None
