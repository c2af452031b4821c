import asyncio
import contextlib
import functools
import gc
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from cerbos_process import CERBOS
from documents import tables
from encrypted_client import make_encryption
from failures import MARKER, Failure, documented_failure
from fork_server import SERVER, ForkingPopen
from hypothesis import HealthCheck, settings
from proved_rows import ProvedRows
from store_fixtures import EmptyStores, shared_statements
from temporalio.client import Client
from temporalio.service import RPCError
from turn_fixtures import Ledger, TurnRig

from signoff.policy.bounded_expression import set_evaluator
from signoff.policypool.pool import PolicyPool
from signoff.store.store import Store, open_store
from signoff.temporal import embedded_server
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, start_server
from signoff.temporal.encryption import Encryption

REQUIRE_ALL = "SIGNOFF_REQUIRE_ALL"
_RUNNING = 'ExecutionStatus = "Running"'
OPENID_PACKAGES = Path(__file__).parent / "openid_server" / "node_modules" / "oidc-provider"
MCP_PACKAGES = Path(__file__).parent / "mcp_packages" / "node_modules" / "@modelcontextprotocol"
VERCEL_PACKAGES = Path(__file__).parent / "vercel_packages" / "node_modules"
LEFT_OUT = pytest.StashKey[str]()
ROWS_LEFT_OUT = pytest.StashKey[frozenset[str]]()

# The time of an example measures the machine's load. A test of a limit states it.
settings.register_profile("signoff", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("signoff")

LONG = (
    "attacks",
    "bench",
    "browser",
    "cli",
    "clients",
    "plugins",
    "security",
    "examples/test_own_program.py",
    "gateway/api/test_description.py",
    "test_compose_story.py",
)
"""Directories and files whose tests take real seconds or separate processes. Only `make test-all` runs them, `LONGEST`,
and tests that need a system program."""
LONGEST = {
    "test_compose_story.py": 108,
    "attacks/test_attack_false_doubts.py": 88,
    "clients/test_temporal_permits.py": 79,
    "bench/test_seeded_kills.py": 75,
    "test_compose.py": 69,
    "workflows/test_while_waiting_killed.py": 50,
    "cli/test_cli_dev.py": 64,
    "attacks/test_attack_b_same_call_again.py": 60,
    "workflows/test_watched_handlers.py": 59,
    "attacks/test_attack_d2_answers_without_worker.py": 50,
    "attacks/test_bounds_of_people.py": 49,
    "security/test_kills.py": 47,
    "attacks/test_attack_many_questions.py": 47,
    "attacks/test_attack_waiting_edits.py": 44,
    "workflows/test_asked_again.py": 16,
    "clients/test_temporal_gate.py": 43,
    "bench/test_bench.py": 42,
    "browser/test_inbox.py": 42,
    "cli/test_cli_store_clean.py": 42,
    "attacks/test_bounds_of_models.py": 39,
    "store/test_restored_backups.py": 38,
    "cli/test_documented_failures.py": 38,
    "plugins/twilio/test_twilio.py": 38,
    "cli/test_cli_decisions.py": 38,
    "channels/mail/test_imap.py": 37,
    "bench/test_scale.py": 36,
    "workflows/test_worker_versions.py": 36,
    "gateway/vendors/test_channel_routes.py": 33,
    "test_left_out.py": 33,
    "test_embedded.py": 30,
    "gateway/events/test_event_handlers.py": 30,
    "workflows/test_many_waiting.py": 29,
    "gateway/events/test_recorders.py": 29,
    "attacks/test_attack_d4_store_begun_anew.py": 28,
    "attacks/test_bounds_of_strangers.py": 28,
    "channels/test_whatsapp.py": 28,
    "plugins/mcp/test_protocol_server.py": 28,
    "browser/test_login_windows.py": 27,
    "cli/test_cli_credentials.py": 27,
    "attacks/test_attack_03_spent_approvals.py": 26,
    "clients/test_frameworks.py": 25,
    "attacks/test_attack_a_rogue_poller.py": 24,
    "test_proved_rows.py": 24,
    "plugins/telegram/test_telegram.py": 24,
    "channels/test_writing_a_channel.py": 23,
    "browser/test_answers.py": 22,
    "workflows/test_escalation.py": 22,
    "cli/test_cli_tenants.py": 21,
    "security/test_killed_calls.py": 21,
    "attacks/test_attack_09_endless_bodies.py": 21,
    "plugins/a2a/test_peer_tasks.py": 21,
    "workflows/test_session_runs.py": 20,
    "channels/test_slack.py": 20,
    "examples/test_own_plugin.py": 20,
    "examples/test_existing_worker.py": 20,
    "workflows/test_recorded_installations.py": 20,
    "cli/test_cli_init.py": 20,
    "store/test_migrations.py": 18,
    "test_helm_chart.py": 18,
    "plugins/hooks/test_hook_calls.py": 18,
    "cli/test_cli_doctor.py": 17,
    "store/test_delivery_queue.py": 17,
    "store/questions/test_old_turns.py": 17,
    "store/test_store_roles.py": 16,
    "clients/test_call.py": 16,
    "workflows/test_turn_handlers.py": 16,
    "test_failures.py": 15,
    "store/test_request_reader.py": 15,
    "engine/test_fair_shares.py": 15,
    "workflows/test_outcomes_told.py": 15,
    "plugins/aap/test_approval_requests.py": 14,
    "gateway/calls/test_two_gateways.py": 14,
    "test_tables.py": 14,
    "cli/test_cli_production.py": 13,
}
"""Files of over 14 s, with their seconds: they begin early, so that no process works on one alone in the end.

Files that `make test` must run have no entry: documents and words, tickets and the store itself.
"""


def order_of_files(files: Sequence[Path], seconds: Mapping[Path, int]) -> list[Path]:
    """The longest files first, each followed by short ones of about the same total time. The longest files mostly wait:
    together they would leave processors idle until the end.
    """
    long = [path for path in seconds if path in files]
    short = [path for path in files if path not in seconds]
    total, passed, ordered, taken = sum(seconds[path] for path in long), 0, list[Path](), 0
    for path in long:
        passed += seconds[path]
        until = len(short) * passed // total
        ordered += [path, *short[taken:until]]
        taken = until
    return ordered + short[taken:]


# The tests' Temporal server uses a sixth less processor time: its threads do not spin for work, and its garbage
# collection is rarer. The tests use the other processors.
os.environ.setdefault("GOMAXPROCS", "1")
os.environ.setdefault("GOGC", "400")


@functools.cache
def programs() -> Mapping[str, bool]:
    return {
        "cerbos": CERBOS.exists(),
        "chromium": shutil.which("chromium") is not None,
        "dovecot": Path("/usr/lib/dovecot/imap").exists() and Path("/usr/lib/dovecot/lmtp").exists(),
        "promtool": shutil.which("promtool") is not None,
        "mcp_packages": shutil.which("node") is not None and MCP_PACKAGES.exists(),
        "openid": shutil.which("node") is not None and OPENID_PACKAGES.exists(),
        "pyright": shutil.which("node") is not None and (VERCEL_PACKAGES / "pyright").exists(),
        "vercel": shutil.which("node") is not None and (VERCEL_PACKAGES / "ai").exists(),
        "postgres": shutil.which("postgres") is not None or bool(glob("/usr/lib/postgresql/*/bin/postgres")),
    }


def needed(item: pytest.Item) -> list[str]:
    return sorted(name for name, found in programs().items() if not found and item.get_closest_marker(name))


def pytest_configure(config: pytest.Config) -> None:
    done = ProvedRows(
        config,
        lambda: {row[0] for row in tables("docs/internal/features.md", "Done")},
        lambda: config.stash.get(ROWS_LEFT_OUT, frozenset()),
    )
    config.pluginmanager.register(done, "proved-rows")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the waiting places of all tasks to the report of a test that timed out: its traceback ends in the loop."""
    outcome: Any = yield
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        outcome.get_result().sections.append(("What tasks wait for", "\n".join(waiting_tasks())))


def waiting_tasks() -> list[str]:
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
    return sorted(" > ".join(_places(task.get_coro())) for task in tasks)


def _places(awaited: Any) -> Iterator[str]:
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def pytest_sessionstart() -> None:
    """Give each test process its own ports: another process could take a chosen one before its use."""
    name, count = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if name:
        ports = embedded_server._FREE_PORTS
        embedded_server._FREE_PORTS = ports[int(name.removeprefix("gw")) :: count]  # type: ignore[misc]


def pytest_xdist_auto_num_workers() -> int:
    """Three processes for two cores: tests also wait for servers and disks, and their servers need a share."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Skip garbage collection: objects of imports and of the collection stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_longest_first(items: list[pytest.Item]) -> None:
    """Mark tests before `-m` selects."""
    here = Path(__file__).parent
    long = {here / name for name in (*LONG, *LONGEST)}
    # Once per file and not per test: there are twenty times as many tests.
    marked = {path: not long.isdisjoint((path, *path.parents)) for path in dict.fromkeys(item.path for item in items)}
    for item in items:
        if marked[item.path] or not programs().keys().isdisjoint(mark.name for mark in item.iter_markers()):
            item.add_marker("long")
    ordered = order_of_files(list(marked), {here / name: seconds for name, seconds in LONGEST.items()})
    rank = {path: number for number, path in enumerate(ordered)}
    items.sort(key=lambda item: rank[item.path])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests with a missing program, long ones and rehearsals, unless they are named or required."""
    everything = config.args_source == pytest.Config.ArgsSource.TESTPATHS
    everything = everything and not (config.option.markexpr or config.option.keyword)
    rehearsed = {item: None for item in items if everything and item.get_closest_marker("rehearsal")}
    lacking, long = list[pytest.Item](), list[pytest.Item]()
    if os.environ.get(REQUIRE_ALL) != "1":
        lacking = [item for item in items if needed(item)]
        known = {*rehearsed, *lacking}
        long = [item for item in items if everything and item.get_closest_marker("long") and item not in known]
    out = dict.fromkeys((*lacking, *long, *rehearsed))
    if not out:
        return
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=list(out))
    names = ", ".join(sorted({name for item in lacking for name in needed(item)}))
    entries = [f"left out {len(lacking)} tests that need programs not installed here: {names}"] if lacking else []
    entries += [f"left out {len(long)} long tests: make test-all runs them"] if long else []
    entries += [f"left out {len(rehearsed)} tests of the rehearsal: make rehearsal runs them"] if rehearsed else []
    rows = sorted({row for item in out for mark in item.iter_markers("row") for row in mark.args})
    _leave_out(config, "; ".join(entries), rows)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = ("; ".join(entries), rows)


def _leave_out(config: pytest.Config, result: str, rows: list[str]) -> None:
    config.stash[LEFT_OUT] = result
    config.stash[ROWS_LEFT_OUT] = frozenset(rows)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if names := needed(item):
        pytest.fail(f"needs programs that are not installed: {', '.join(names)} ({REQUIRE_ALL}=1)", pytrace=False)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """All test processes omit the same tests."""
    if left_out := getattr(node, "workeroutput", {}).get("left_out"):
        _leave_out(node.config, *left_out)


def pytest_unconfigure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and LEFT_OUT in config.stash:
        reporter.write_line(config.stash[LEFT_OUT], yellow=True)


@pytest.fixture(scope="session", autouse=True)
def policy_pool() -> Iterator[None]:
    """Processes evaluate costly expressions in every program of Signoff, and in these tests."""
    pool = PolicyPool()
    set_evaluator(pool)
    yield
    pool.close()


@pytest.fixture(scope="session", autouse=True)
def empty_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """New stores are copies of an empty one, see `EmptyStores`."""
    with EmptyStores(tmp_path_factory.mktemp("empty-store")).used(), shared_statements():
        yield


@pytest.fixture(scope="session", autouse=True)
def forked_programs(pytestconfig: pytest.Config) -> Iterator[None]:
    """Programs of Signoff that tests start are forks, see `fork_server`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", ForkingPopen)
        # Not by the environment: a test's own run of pytest, which starts no program, has it as well.
        if hasattr(pytestconfig, "workerinput"):
            # Otherwise the first program would wait for the whole import, and the workers of its test with it.
            SERVER.start()
        yield


@pytest.fixture(autouse=True)
def no_modules_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Another test may write a module with the same name."""
    known = set(sys.modules)
    yield
    folder = str(tmp_path_factory.getbasetemp())
    sys.path[:] = [place for place in sys.path if not place.startswith(folder)]
    for name in sys.modules.keys() - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
            del sys.modules[name]


@pytest.fixture(scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHandle]:
    folder = tmp_path_factory.mktemp("temporal")
    options = ServerOptions(folder / "temporal.db", port=free_port(), ui_port=None, time_skipping=True)
    handle = await start_server(options)
    yield handle
    # A stop takes up to ten seconds with open workflows, and no test reads the data afterwards.
    await handle.kill()


@pytest.fixture(scope="session")
async def encryption(tmp_path_factory: pytest.TempPathFactory) -> Encryption:
    """Turns send encrypted data to the server, as in production."""
    return await make_encryption(tmp_path_factory.mktemp("keys") / "encryption-keys.json")


@pytest.fixture(scope="session")
async def client(server: ServerHandle, encryption: Encryption) -> Client:
    return await server.connect(encryption)


@pytest.fixture(scope="session")
async def plain_client(server: ServerHandle) -> Client:
    return await server.connect()


@pytest.fixture
async def nothing_waits(client: Client) -> None:
    """End other tests' turns on the session's server: a freeze waits for each turn without a worker."""
    while (await client.count_workflows(_RUNNING)).count:
        async for left in client.list_workflows(_RUNNING):
            with contextlib.suppress(RPCError):
                await client.get_workflow_handle(left.id, run_id=left.run_id).terminate()


@pytest.fixture
def task_queue() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as opened:
        yield opened


@pytest.fixture
def turn_rig(client: Client, store: Store, task_queue: str) -> TurnRig:
    return TurnRig(client, store, task_queue)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def failure(request: pytest.FixtureRequest) -> Iterator[Failure]:
    """Fails a test that used neither the row's words nor its remedy."""
    caused = documented_failure(request.node.get_closest_marker(MARKER).args[0])
    yield caused
    assert (caused.seen, bool(caused.done)) == (True, True), f"not all of `{caused.row.words}` was seen and done"


@pytest.fixture
def clean_env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An empty working directory without variables of Signoff, Temporal or an editor."""
    for name in list(os.environ):
        if name.upper().startswith(("SIGNOFF_", "TEMPORAL_", "VISUAL")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return monkeypatch
