"""Connects one catalog to one Temporal worker. `python worker.py` runs this installation's worker."""

import asyncio
import dataclasses
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, Self, TypedDict

from temporalio.client import Client, ClientConfig
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    PollerBehaviorAutoscaling,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerConfig,
    WorkerDeploymentConfig,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from signoff import policypool
from signoff.activities.answers_activity import AnswersActivity
from signoff.activities.call_journal import RecordActivity
from signoff.activities.caller_check import CallerInterceptor
from signoff.activities.capability_backends import built_in_backends, check_backends
from signoff.activities.detail_cards import DetailCards
from signoff.activities.event_activity import EventActivity
from signoff.activities.gate_activity import GateActivity
from signoff.activities.mcp.tool_servers import tool_servers, use_servers
from signoff.activities.model_activity import ModelActivity
from signoff.activities.models.drivers import build_drivers
from signoff.activities.models.reply_activity import ReplyActivity
from signoff.activities.models.start_check import check_start
from signoff.activities.outcome_activity import OutcomeActivity
from signoff.activities.reply_sweep import ReplySweep
from signoff.activities.run_once import tool_activities
from signoff.activities.store_identity import StoreInterceptor
from signoff.activities.telemetry.log_fields import LogFieldsInterceptor
from signoff.activities.telemetry.spans import SpanInterceptor
from signoff.activities.worker_deps import Profile, WorkerDeps
from signoff.audit.config_snapshots import follow_people, note_catalog
from signoff.contracts import names
from signoff.contracts.completion import Driver
from signoff.contracts.errors import ConfigError, SignoffError
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.engine.connection import check_client, connect_installation, open_encryption, require_codec
from signoff.engine.credential_check import check_public_keys, check_store_role
from signoff.engine.metrics_endpoint import MetricsEndpoint
from signoff.engine.span_process import open_spans
from signoff.formats.tenant_limits import NO_LIMITS, TenantLimits, parse_tenant_limits
from signoff.keys.key_files import FileVerifier
from signoff.keys.secrets import SecretProvider
from signoff.keys.signatures import Verifier
from signoff.people.directory import Directory
from signoff.registry.capabilities import Backend
from signoff.registry.catalog import Catalog
from signoff.registry.installation import Installation, load_installation
from signoff.settings import load_settings, require_deployment, require_real_model
from signoff.store.store import Store, working_store
from signoff.temporal.converter import DATA_CONVERTER, encrypting_converter
from signoff.temporal.encryption import Encryption, EncryptionCodec
from signoff.temporal.junk_signals import quiet_junk_signals
from signoff.temporal.query_fence import QueryFence, QueryFenceInterceptor
from signoff.temporal.workflow_runner import Contexts, FencedBridge, FencedRunner
from signoff.workflows.actor_turn import ActorTurn
from signoff.workflows.handler_run import HandlerRun
from signoff.workflows.session import Session

PASSED_THROUGH: Final = ("signoff",)
"""Signoff modules that an embedder's workflows share instead of loading them for each instance."""

_UPGRADING: Final = (names.SESSION, names.HANDLER_RUN)
"""Workflows that use the current version even with pinned turns: they outlive a version, or wait for nothing."""
_SDK_RUNNERS: Final = (SandboxedWorkflowRunner, UnsandboxedWorkflowRunner)
_MARK_KEY = "card-mark"
_BUILD_HEX = 8
"""Hex digits of the catalog's hash in Temporal's UI: they identify the declarations of a task."""


async def build_deps(
    catalog: Catalog,
    store: Store,
    *,
    people: Directory | None = None,
    profile: Profile = "development",
    raw_answers: bool = True,
    model: str = "",
    verifier: Verifier | None = None,
    backends: Mapping[str, Backend] | None = None,
    secrets: SecretProvider | None = None,
    public_url: str = "",
    result_chars: int = RESULT_CHARS_PER_BATCH,
    tenant_limits: TenantLimits = NO_LIMITS,
    task_queue: str = "",
    trace: bool = False,
    drivers: Mapping[str, Driver] | None = None,
) -> WorkerDeps:
    """Build the shared objects of a worker's activities.

    `model` replaces scripted models. Without `raw_answers`, the development profile accepts no unsigned answer or
    start. `verifier` checks the gateway's signatures. Without one, the worker accepts no signature. `backends` are for
    declared capabilities, by kind. The default is every backend that needs no setup. `secrets` reads secrets. The
    default has no source. `public_url` is the inbox's address for links in Temporal's UI. `result_chars` is the limit
    for the results of one completion's calls, unless their actor has another. `tenant_limits` limit a tenant's pending
    requests. With `trace`, log and audit log show the meaning of each call's tool name. `drivers` complete for the
    catalog's models. By default they are built. Raises `ConfigError`:

    - for a model without a driver, or a backend of `secrets`
    - for a program or folder that this machine lacks, if a tool of `task_queue` declares it
    - in the production profile, without a verifier with a key
    """
    policypool.install()
    verifier, secrets = verifier or Verifier(), secrets or SecretProvider()
    if profile == "production" and not verifier.key_ids:
        raise ConfigError(
            "a worker of the production profile checks signatures, and it has no public keys: take those that "
            "`signoff keys export` writes where the gateway is, and name them in SIGNOFF_PUBLIC_KEYS",
            field="public_keys",
        )
    require_real_model(profile, (*catalog.models, model))
    if backends and "secrets" in backends:
        # A second source would bypass the redaction of secrets.
        raise ConfigError("secrets come from the provider: give `secrets` in place of a backend", field="backends")
    found = built_in_backends() if backends is None else backends
    check_backends(catalog.every_tool, found, task_queue)
    return WorkerDeps(
        catalog=catalog,
        store=store,
        people=catalog.people if people is None else people,
        drivers=await build_drivers(catalog, secrets, instead=model) if drivers is None else drivers,
        # A card shows its digest under this key: a plain hash would let readers guess a masked argument.
        mark_key=await store.secret_key(_MARK_KEY),
        profile=profile,
        raw_answers=raw_answers,
        verifier=verifier,
        backends=found,
        secrets=secrets,
        public_url=public_url,
        result_chars=result_chars,
        tenant_limits=tenant_limits,
        trace=trace,
        servers=tool_servers(catalog.mcp_servers, secrets),
    )


async def prepared_deps(installation: Installation, store: Store, where: str) -> WorkerDeps:
    """Build the shared objects of an installation's activities, and record its policies for the worker `where`.

    Raises `ConfigError` for a model without a driver, a tool without possible approvers, credentials of another process
    or installation, or an incomplete production profile.
    """
    settings = installation.settings
    # Read only the public file: an attacker in a worker must not be able to sign.
    verifier = FileVerifier(settings.public_keys)
    drivers = await check_start(installation, settings.task_queue, public_keys=bool(verifier.key_ids))
    check_store_role(store, "worker")
    if settings.profile == "production":
        await check_public_keys(store, verifier.key_ids, str(settings.public_keys))
    named = "public_url" in settings.model_fields_set
    deps = await build_deps(
        installation.catalog,
        store,
        people=installation.people,
        profile=settings.profile,
        raw_answers=settings.raw_answers,
        model=settings.model,
        verifier=verifier,
        backends={**built_in_backends(settings.state_dir / "storage"), **installation.backends},
        secrets=installation.secrets,
        # In production, an address made from this machine's name would mislead viewers of Temporal's UI elsewhere.
        public_url=settings.public_url if named or settings.profile == "development" else "",
        result_chars=settings.result_chars,
        tenant_limits=parse_tenant_limits(settings.tenant_limits),
        task_queue=settings.task_queue,
        trace=settings.trace,
        drivers=drivers,
    )
    # Before the worker runs: the audit log has the policies before they judge any call.
    await note_catalog(store, installation.catalog, where, clock=deps.clock)
    return deps


@asynccontextmanager
async def installed_worker(
    installation: Installation,
    client: Client,
    store: Store,
    *,
    task_queue: str,
    deployment: WorkerDeploymentConfig | None = None,
) -> AsyncIterator[Worker]:
    """Yield a worker of an installation, to be run within the block. Raises as `prepared_deps`.

    `deployment` is `worker_deployment(installation)` for a versioned worker. Changed policies and people are recorded,
    at the start and later.
    """
    where = f"worker {task_queue}"
    deps = await prepared_deps(installation, store, where)
    async with (
        open_spans(installation.settings, "worker") as spans,
        follow_people(store, installation.people, where, clock=deps.clock),
        use_servers(deps.servers),
    ):
        deps = dataclasses.replace(deps, spans=spans)
        yield build_worker(client, deps, task_queue=task_queue, deployment=deployment)


@asynccontextmanager
async def open_worker(installation: Installation, temporal: Client | None = None) -> AsyncIterator[Worker]:
    """Yield a worker of an installation with its own store, which is open until the block ends.

    `temporal` is a client of the server with Signoff's data converter. By default, `TEMPORAL_*` names the server.
    Raises `ConfigError`, also for a client with `SignoffPlugin`, `ServerUnavailable`, `StoreUnavailable`.
    """
    if temporal is not None and any(isinstance(each, SignoffPlugin) for each in temporal.config()["plugins"]):
        raise ConfigError(
            "the client has the plugin of `App.plugin()`, so each of its workers runs turns already: run Temporal's "
            "`Worker` with it, or leave `client` out",
            field="client",
        )
    given, deployment = installation.settings, worker_deployment(installation)
    metrics = MetricsEndpoint(given)
    client = check_client(given, temporal) if temporal else await connect_installation(given, installation.secrets)
    queue = given.task_queue
    async with (
        working_store(installation.settings) as store,
        metrics.serve(store, "worker"),
        installed_worker(installation, client, store, task_queue=queue, deployment=deployment) as worker,
    ):
        yield worker


class SignoffPlugin(SimplePlugin):
    """Signoff's additions to a Temporal client and worker: workflows, activities, converter, runners."""

    @classmethod
    @asynccontextmanager
    async def of(cls, installation: Installation) -> AsyncIterator[Self]:
        """Yield the plugin of an installation with its own store, which is open until the block ends.

        Raises `ConfigError`, `StoreUnavailable`.
        """
        where = f"worker {installation.settings.task_queue}"
        async with working_store(installation.settings) as store:
            deps = await prepared_deps(installation, store, where)
            encryption = await open_encryption(installation.settings, installation.secrets)
            async with (
                open_spans(installation.settings, "worker") as spans,
                follow_people(store, installation.people, where, clock=deps.clock),
                use_servers(deps.servers),
            ):
                yield cls(dataclasses.replace(deps, spans=spans), encryption)

    def __init__(self, deps: WorkerDeps, encryption: Encryption | None = None) -> None:
        self._encryption = encryption
        self._fence = QueryFence()
        self._sweep = ReplySweep(deps.store)
        deps.store.counts.tenants.declare(person.tenant for person in deps.people.all())
        super().__init__(
            "signoff.SignoffPlugin",
            data_converter=_our_converter,
            workflows=[ActorTurn, Session, HandlerRun],
            activities=[
                ModelActivity(deps).model,
                GateActivity(deps).gate,
                RecordActivity(deps).record,
                AnswersActivity(deps).read_answers,
                ReplyActivity(deps).reply,
                OutcomeActivity(deps).outcome,
                EventActivity(deps).event,
                *tool_activities(deps),
            ],
            workflow_runner=_share,
            interceptors=[
                # First, so that the logs of all other interceptors have the fields.
                LogFieldsInterceptor(),
                QueryFenceInterceptor(self._fence),
                CallerInterceptor(),
                StoreInterceptor(deps.store.id),
                DetailCards(deps),
                *([] if deps.spans is None else [SpanInterceptor(deps, deps.spans)]),
            ],
        )

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """See `SimplePlugin`. The client encrypts by the installation's settings, unless it has its own codec."""
        if self._encryption is not None and config["data_converter"].payload_codec is None:
            config["data_converter"] = encrypting_converter(self._encryption.codec(config["namespace"]))
        return super().configure_client(config)

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See `SimplePlugin`. Fences the runners of Signoff's workflows, which need no sandbox, and the embedder's.

        Raises `ConfigError` if the installation encrypts and the worker's client does not.
        """
        config = super().configure_worker(config)
        client = config.get("client")
        if self._encryption is not None and self._encryption.writes and client is not None:
            require_codec(client)
        if client is not None:
            deployment = config.get("deployment_config")
            # A pinned session would start every later run, and every turn, with its first version.
            upgrading = _UPGRADING if deployment is not None and deployment.use_worker_versioning else ()

            def fence(runner: WorkflowRunner) -> FencedRunner:
                # Compare the exact class: the needs of another runner's contexts are unknown.
                contexts = _wanted_contexts(client) if type(runner) in _SDK_RUNNERS else "all"
                return FencedRunner(runner, self._fence, contexts=contexts, upgrading=upgrading)

            config["workflow_runner"] = fence(config.get("workflow_runner") or SandboxedWorkflowRunner())
            config["unsandboxed_workflow_runner"] = fence(
                config.get("unsandboxed_workflow_runner") or UnsandboxedWorkflowRunner()
            )
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """See `SimplePlugin`. Adds a fence before the SDK's core, and deletes old replies in the background."""
        quiet_junk_signals()
        worker._bridge_worker = FencedBridge(worker._bridge_worker, self._fence)
        sweeping = asyncio.create_task(self._sweep.run())
        try:
            await super().run_worker(worker, next)
        finally:
            sweeping.cancel()
            # Its store may close as soon as the worker has stopped.
            await asyncio.wait({sweeping})


DEADLOCK_SECONDS: Final = 8
"""Seconds after which a workflow that does not yield is aborted. The server gives a task 10 s.

The SDK has no option for this and uses 2 s. On a busy machine, a turn waits as long just for a processor. Aborting it
makes the SDK's core lose the local activities that it has begun.
"""


class WorkerOptions(TypedDict):
    """The options of Signoff's workers."""

    max_cached_workflows: int
    graceful_shutdown_timeout: timedelta
    workflow_task_poller_behavior: PollerBehaviorAutoscaling
    activity_task_poller_behavior: PollerBehaviorAutoscaling


def worker_options(max_cached_workflows: int = 5_000) -> WorkerOptions:
    """There are no failure types: a bug in workflow code stalls its turns and never fails them."""
    return WorkerOptions(
        # A cached waiting turn costs some 70 kB. Any other replays from its history once answered. With a full cache,
        # the SDK (1.35) may lose a run with several parallel queries: see operations.md.
        max_cached_workflows=max_cached_workflows,
        # The SDK's default is zero: each deploy would cancel the running tools.
        graceful_shutdown_timeout=timedelta(seconds=30),
        # The SDK's default has one poller for uncached runs: of 30 in parallel, the slowest took twice as long.
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
    )


def freeze_gc() -> None:
    """Prepare this process for running a worker, after all imports.

    Garbage collections then skip imported objects, which stay anyway.
    """
    # Collect first: freezing would keep present garbage forever.
    gc.collect()
    gc.freeze()


def default_build_id(catalog: Catalog) -> str:
    """Changed handler code has the same id."""
    return f"{names.VERSION}-{catalog.hash[:_BUILD_HEX]}"


def worker_deployment(installation: Installation) -> WorkerDeploymentConfig | None:
    """Return `None` for an unversioned worker.

    Raises `ConfigError` for a version without a deployment, and for a deployment of an unversioned program.
    """
    settings = installation.settings
    require_deployment(settings)
    if not settings.deployment:
        return None
    build_id = settings.build_id or installation.version or ""
    if not build_id and installation.version is not None:
        why = "a program's code is in no hash, so a deployment needs its version: write `App(version=...)`"
        raise ConfigError(f"{why}, or set SIGNOFF_BUILD_ID", field="build_id")
    build_id = build_id or default_build_id(installation.catalog)
    return deployment_config(settings.deployment, build_id, pinned=settings.versioning == "pinned")


def deployment_config(name: str, build_id: str, *, pinned: bool = False) -> WorkerDeploymentConfig:
    """If `pinned`, turns end with the version that they began with."""
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(name, build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED if pinned else VersioningBehavior.AUTO_UPGRADE,
    )


def build_worker(
    client: Client,
    deps: WorkerDeps,
    *,
    task_queue: str = names.DEFAULT_TASK_QUEUE,
    max_cached_workflows: int = 5_000,
    deployment: WorkerDeploymentConfig | None = None,
) -> Worker:
    """Build a worker. Run it with `async with` or `run()`. Without `deployment` it has no version."""
    # The SDK's own id hashes every loaded module, and appears in thirteen events of a turn with a request.
    build_id = default_build_id(deps.catalog) if deployment is None else None
    worker = Worker(
        client,
        task_queue=task_queue,
        plugins=[SignoffPlugin(deps)],
        build_id=build_id,
        deployment_config=deployment,
        **worker_options(max_cached_workflows),
    )
    if worker._workflow_worker is not None:
        worker._workflow_worker._deadlock_timeout_seconds = DEADLOCK_SECONDS
    return worker


def _our_converter(given: DataConverter | None) -> DataConverter:
    if given is None or given.payload_codec is None:
        return DATA_CONVERTER
    return dataclasses.replace(
        DATA_CONVERTER,
        payload_codec=given.payload_codec,
        failure_converter_class=given.failure_converter_class,
    )


def _share(runner: WorkflowRunner | None) -> WorkflowRunner:
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner or SandboxedWorkflowRunner()
    # Extend the embedder's own sandbox restrictions.
    return dataclasses.replace(runner, restrictions=runner.restrictions.with_passthrough_modules(*PASSED_THROUGH))


def _wanted_contexts(client: Client) -> Contexts:
    converter = client.data_converter
    if converter.external_storage is not None:
        return "all"
    if converter.payload_codec is None:
        return "none"
    # Compare the exact class: a subclass may read more of a context.
    return "workflow" if type(converter.payload_codec) is EncryptionCodec else "all"


async def run_worker() -> None:
    """Wait for running tools after SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    async with open_worker(load_installation(load_settings())) as worker:
        freeze_gc()
        async with worker:
            print(f"a worker of the task queue {worker.task_queue}; Ctrl-C stops it", flush=True)
            await stop.wait()


def _main() -> int:
    try:
        asyncio.run(run_worker())
    except SignoffError as error:
        print(f"worker: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = _main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Temporal's native threads can abort a normal interpreter exit, which would hide the exit code.
    os._exit(code)
