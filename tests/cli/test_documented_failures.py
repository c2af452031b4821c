import asyncio
import contextlib
import os
import shutil
import socket
import uuid
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from cli_kit import Cli, assert_one_sentence, found, waiting_request
from failures import Failure
from served_stack import MANIFEST, gateway_alone, worker_alone
from site_kit import Site, here, ready_site, token
from store_roles import RoleUrls, given_roles, made_roles, sql, store_command

from signoff.approvals.audit_events import admin_entry
from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import AuditLog
from signoff.cli.local import doctor as doctor_command
from signoff.contracts.clock import system_clock
from signoff.contracts.limits import BODIES_AT_ONCE, SENDER_SHARE
from signoff.gateway.transport import body_limit
from signoff.keys.key_files import read_private
from signoff.keys.signatures import Signer
from signoff.settings import load_settings
from signoff.store.store import open_store
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, find_temporal, free_port, run_server


async def until_found(cli: Cli, name: str, words: str) -> str:
    """The server's lists and the store's counts lag a little."""
    while words not in (message := (await found(cli, name))[1]):
        await asyncio.sleep(0.1)
    return message


@pytest.mark.failure("the variable ... is not known: did you mean ...")
async def test_misspelt_variable_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, failure: Failure
) -> None:
    await ready_site(cli, clean_env, site)
    clean_env.setenv("SIGNOFF_STORE_URI", os.environ["SIGNOFF_STORE_URL"])
    text = assert_one_sentence(await cli("gateway"))
    failure.assert_seen(text)
    failure.follow("as the sentence says")
    clean_env.delenv("SIGNOFF_STORE_URI")
    assert "did you mean `SIGNOFF_STORE_URL`?" in text
    assert (await found(cli, "settings"))[0]


@pytest.mark.failure("`profile` is `production`, and this is missing: ...")
async def test_gateway_with_missing_requirements_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, failure: Failure
) -> None:
    here(clean_env, site, "gateway")
    failure.assert_seen(text := assert_one_sentence(await cli("gateway")))
    failure.follow("signoff keys create")
    assert "`signoff keys create`" in text
    await cli("keys", "create")
    failure.assert_seen(text := assert_one_sentence(await cli("gateway")))
    failure.follow("signoff token create")
    assert "`signoff token create PERSON`" in text
    await token(cli, "ana")
    async with site.running("gateway") as gateway:
        assert gateway.returncode is None


@pytest.mark.failure("other users may read or change it: `chmod 600 ...`")
async def test_key_file_readable_by_others_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, failure: Failure
) -> None:
    await ready_site(cli, clean_env, site)
    (site.folder / "encryption-keys.json").chmod(0o644)
    text = assert_one_sentence(await cli("gateway"))
    failure.assert_seen(text)
    failure.follow("chmod 600")
    await typed(text.split("`")[-2])
    assert (await found(cli, "encryption"))[0]


@pytest.mark.failure("the public keys in ... are not those of the gateway that signs here")
async def test_public_keys_of_another_gateway_are_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, failure: Failure
) -> None:
    await ready_site(cli, clean_env, site)
    await signed_record(site)
    for process in ("worker", "codec"):
        public = site.folder / process / "public-keys.json"
        clean_env.setenv("SIGNOFF_STATE_DIR", str(site.folder / "another"))
        await cli("keys", "create")
        await cli("keys", "export", "--out", str(public))
        here(clean_env, site, process)
        failure.assert_seen(text := assert_one_sentence(await cli(process)))
        ok, told = await found(cli, "signatures")
        assert (ok, told in text, "signoff keys export" in text) == (False, True, True)
        failure.follow("signoff keys export", "where the gateway is")
        here(clean_env, site, "gateway")
        await cli("keys", "export", "--out", str(public))
        here(clean_env, site, process)
        assert (await found(cli, "signatures"))[0]


async def signed_record(site: Site) -> None:
    async with open_store(site.env("gateway")["SIGNOFF_STORE_URL"]) as store:
        await AuditLog(store).append([admin_entry("main", "tested", "", system_clock())])
        signer = Signer(read_private(site.folder / "gateway" / "signing-keys.json"))
        assert await Checkpoints(store).take(signer) is not None


@pytest.mark.failure("the signing keys here have not signed this store's record")
async def test_lost_signing_keys_are_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, failure: Failure
) -> None:
    await ready_site(cli, clean_env, site)
    await signed_record(site)
    assert (await found(cli, "signatures"))[0]
    private = site.folder / "gateway" / "signing-keys.json"
    backup = private.rename(site.folder / "backup.json")
    await cli("keys", "create")
    ok, text = await found(cli, "signatures")
    failure.assert_seen(text)
    failure.follow("back from the backup")
    backup.replace(private)
    assert (ok, (await found(cli, "signatures"))[0]) == (False, True)


@pytest.mark.failure("running turns are encrypted by keys that are not among those of ...")
async def test_encryption_keys_of_another_process_are_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, site: Site, failure: Failure
) -> None:
    await ready_site(cli, clean_env, site)
    keys, theirs = site.folder / "encryption-keys.json", site.folder / "theirs.json"
    async with site.running("gateway"), site.running("worker"):
        clean_env.setenv("SIGNOFF_TOKEN", await token(cli, "ana"))
        await waiting_request(cli, "pay 40")
    keys.rename(theirs)
    await cli("keys", "create", "--encryption")
    failure.assert_seen(await until_found(cli, "turns", "are encrypted by"))
    failure.follow("Copy the file of a process that has the keys")
    shutil.copy(theirs, keys)
    assert (await found(cli, "turns"))[0]


@pytest.mark.postgres
@pytest.mark.failure("the SIGNOFF_STORE_URL of this ... is that of the ...'s role")
async def test_store_role_of_another_process_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, postgres_server: str, failure: Failure
) -> None:
    urls = await made_roles(postgres_server)
    await given_roles(urls, site.folder)
    await ready_site(cli, clean_env, site)
    clean_env.setenv("SIGNOFF_STORE_URL", urls.gateway)
    await token(cli, "ana")
    for process, role in (("worker", "gateway"), ("codec", "worker"), ("gateway", "worker")):
        here(clean_env, site, process)
        clean_env.setenv("SIGNOFF_STORE_URL", getattr(urls, role))
        failure.assert_seen(text := assert_one_sentence(await cli(process)))
        assert (f"is that of the {role}'s role" in text, "signoff store roles" in text) == (True, True)
    ok, told = await found(cli, "store role")
    assert (ok, "is that of the worker's role" in told) == (False, True)
    failure.follow("its own")
    async with site.running("gateway", SIGNOFF_STORE_URL=urls.gateway) as gateway:
        assert gateway.returncode is None


async def roles_made_by_words(site: Site, urls: RoleUrls, *commands: tuple[str, ...]) -> str:
    printed = []
    for words in commands:
        code, output = await store_command(urls.owner, site.folder, *words)
        assert code == 0, output
        printed.append(output)
    return "".join(printed)


@pytest.mark.postgres
@pytest.mark.failure("this database role was given nothing in the store")
async def test_store_role_without_rights_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, postgres_server: str, failure: Failure
) -> None:
    urls = await made_roles(postgres_server)
    await roles_made_by_words(site, urls, ("migrate",))
    here(clean_env, site, "worker")
    clean_env.setenv("SIGNOFF_STORE_URL", urls.worker)
    failure.assert_seen((await found(cli, "store"))[1])
    failure.follow("signoff store roles", "the owner's address")
    roles = ("roles", "--worker", urls.names["worker"], "--gateway", urls.names["gateway"])
    assert "has the rights of a worker" in await roles_made_by_words(site, urls, roles)
    assert await found(cli, "store") == (True, "answers, and can be written")


@pytest.mark.postgres
@pytest.mark.failure("the store's tables are of the version ..., this program's of ...")
async def test_missing_store_migration_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, postgres_server: str, failure: Failure
) -> None:
    urls = await made_roles(postgres_server)
    here(clean_env, site, "worker")
    clean_env.setenv("SIGNOFF_STORE_URL", urls.worker)
    failure.assert_seen((await found(cli, "store"))[1])
    failure.follow("With the owner's address `signoff store migrate`, then `signoff store roles`")
    roles = ("roles", "--worker", urls.names["worker"], "--gateway", urls.names["gateway"])
    await roles_made_by_words(site, urls, ("migrate",), roles)
    assert await found(cli, "store") == (True, "answers, and can be written")


@pytest.mark.failure("the store's tables are of a newer version")
async def test_newer_store_version_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, failure: Failure
) -> None:
    await ready_site(cli, clean_env, site)
    file, backup = site.folder / "signoff.db", site.folder / "backup.db"
    shutil.copy(file, backup)
    async with open_store(os.environ["SIGNOFF_STORE_URL"]) as store:
        await store.run(lambda connection: connection.exec_driver_sql("UPDATE signoff_version SET version_num = 'z'"))
    failure.assert_seen(assert_one_sentence(await cli("gateway")))
    failure.follow("put the backup of before the upgrade back")
    backup.replace(file)
    assert await found(cli, "store") == (True, "answers, and can be written")


@pytest.mark.failure("no Temporal server answers at ...")
async def test_missing_server_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, tmp_path: Path, failure: Failure
) -> None:
    await ready_site(cli, clean_env, site)
    port = free_port()
    clean_env.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{port}")
    failure.assert_seen(assert_one_sentence(await cli("gateway")))
    failure.follow("Start it", "TEMPORAL_ADDRESS")
    async with run_server(ServerOptions(tmp_path / "own" / "temporal.db", port=port, ui_port=None)):
        assert (await found(cli, "server"))[0]


@pytest.mark.failure("there is no namespace ...: create it with ...")
async def test_missing_namespace_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, failure: Failure
) -> None:
    await ready_site(cli, clean_env, site)
    clean_env.setenv("TEMPORAL_NAMESPACE", f"space-{uuid.uuid4().hex[:8]}")
    text = assert_one_sentence(await cli("gateway"))
    failure.assert_seen(text)
    failure.follow("temporal operator namespace create", "as the sentence says")
    program = find_temporal()
    assert program is not None
    await typed(text.split("`")[3], PATH=f"{program.parent}:{os.environ['PATH']}")
    # A server needs some seconds before it knows a new namespace.
    await until_found(cli, "search attributes", "lacks the search attributes")
    assert (await cli("doctor", "--fix")).code == 0


async def typed(line: str, **variables: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-euc", line),
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()


@pytest.mark.failure("port ... of ... is in use")
async def test_port_in_use_is_documented(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, failure: Failure) -> None:
    await ready_site(cli, clean_env, site)
    with socket.create_server(("127.0.0.1", site.port)):
        text = assert_one_sentence(await cli("gateway"))
    failure.assert_seen(text)
    assert "SIGNOFF_PORT" in text
    failure.follow("Stop it")
    async with site.running("gateway") as gateway:
        assert gateway.returncode is None


@pytest.mark.failure("no gateway answers at ...")
async def test_missing_gateway_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, task_queue: str, failure: Failure
) -> None:
    clean_env.setenv("SIGNOFF_PORT", str(free_port()))
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    failure.assert_seen(assert_one_sentence(await cli("inbox")))
    failure.follow("signoff store freeze", "signoff gateway")
    frozen = await cli("store", "freeze", "main", "--reason", "nobody answers")
    async with gateway_alone(clean_env, cli_server, task_queue):
        answered = await cli("inbox", "--json")
    assert (frozen.code, answered.code) == (0, 0)


@pytest.mark.failure("the gateway at ... belongs to the project with its state in ...")
async def test_command_in_another_directory_is_refused_by_the_gateway_of_another_project(
    cli: Cli,
    clean_env: pytest.MonkeyPatch,
    cli_server: ServerHandle,
    task_queue: str,
    failure: Failure,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    clean_env.setenv("SIGNOFF_STORE_URL", f"sqlite:///{Path.cwd()}/signoff.db")
    async with gateway_alone(clean_env, cli_server, task_queue), worker_alone(cli_server, task_queue):
        url, own = load_settings().public_url, Path.cwd()
        approval = str((await waiting_request(cli, "pay 2000"))["id"])
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        for folder in (own, elsewhere):
            (folder / "signoff.toml").write_text(f"port = {urlsplit(url).port}", encoding="utf-8")
        with clean_env.context() as there:
            there.delenv("SIGNOFF_PORT")
            assert approval in (await cli("inbox", "--json")).out
            there.chdir(elsewhere)
            for command in (("inbox",), ("approve", approval), ("ask", "--no-wait", "look")):
                failure.assert_seen(assert_one_sentence(await cli(*command)))
            failure.follow("Run the command in the project's directory", "SIGNOFF_PUBLIC_URL")
            there.setenv("SIGNOFF_PUBLIC_URL", url)
            assert approval in (await cli("inbox", "--json")).out


@contextlib.asynccontextmanager
async def production_gateway(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, site: Site
) -> AsyncIterator[str]:
    await ready_site(cli, clean_env, site)
    async with gateway_alone(clean_env, cli_server, site.queue):
        yield load_settings().public_url


@pytest.mark.failure("put one of yours in SIGNOFF_TOKEN")
async def test_missing_or_revoked_token_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, site: Site, failure: Failure
) -> None:
    async with production_gateway(cli, clean_env, cli_server, site):
        failure.assert_seen(assert_one_sentence(await cli("inbox")))
        clean_env.setenv("SIGNOFF_TOKEN", await token(cli, "ana"))
        for each in (await cli("token", "list", "--json")).data:
            await cli("token", "revoke", each["id"])
        failure.assert_seen(assert_one_sentence(await cli("inbox")))
        failure.follow("signoff token create")
        clean_env.setenv("SIGNOFF_TOKEN", await token(cli, "ana"))
        assert (await cli("inbox")).code == 0


@pytest.mark.failure("in the last day ... sign_in")
async def test_refused_sign_ins_are_counted(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, site: Site, failure: Failure
) -> None:
    async with (
        production_gateway(cli, clean_env, cli_server, site) as url,
        httpx2.AsyncClient(base_url=url, timeout=60) as http,
    ):
        for _ in range(3):
            wrong = await http.get("/v1/approvals", headers={"authorization": "Bearer sgf_wrong"})
            assert wrong.status_code == 401
        failure.assert_seen(await until_found(cli, "refused", "sign_in"))
        failure.follow("signoff audit export", "sign-in refused")
        record = (await cli("audit", "export", "--tenant", "main")).out
        assert record.count('"act":"sign-in refused"') >= 1
        assert "sgf_wrong" not in record


async def held_body(url: str) -> asyncio.StreamWriter:
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = ("POST /v1/turns HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json", "Content-Length: 99")
    writer.write("\r\n".join((*head, "", "")).encode())
    await writer.drain()
    return writer


@pytest.mark.failure("in the last day ... busy")
async def test_too_many_request_bodies_are_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, task_queue: str, failure: Failure
) -> None:
    async with contextlib.AsyncExitStack() as stack, httpx2.AsyncClient(timeout=60) as http:
        await stack.enter_async_context(gateway_alone(clean_env, cli_server, task_queue))
        first = load_settings().public_url
        await stack.enter_async_context(gateway_alone(clean_env, cli_server, task_queue))
        second = load_settings().public_url
        answer = None
        while answer != 503:
            for _ in range(BODIES_AT_ONCE // SENDER_SHARE):
                stack.callback((await held_body(first)).close)
            answer = (await http.post(f"{first}/v1/turns", json={"text": "look"})).status_code
        failure.assert_seen(await until_found(cli, "refused", "busy"))
        failure.follow("Another gateway over the same store")
        taken = await http.post(f"{second}/v1/turns", json={"text": "look"})
        assert (first != second, taken.status_code) == (True, 201)


@pytest.mark.failure("in the last day ... too_slow")
async def test_unfinished_request_body_is_documented(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, task_queue: str, failure: Failure
) -> None:
    async with gateway_alone(clean_env, cli_server, task_queue), httpx2.AsyncClient(timeout=60) as http:
        url = load_settings().public_url
        # For this body only: even with a complete body, a busy machine may read the header a moment before the rest.
        with clean_env.context() as hurried:
            hurried.setattr(body_limit, "BODY_GRACE_SECONDS", 0.1)
            writer = await held_body(url)
            failure.assert_seen(await until_found(cli, "refused", "too_slow"))
        writer.close()
        failure.follow("Complete bodies are served")
        assert (await http.post(f"{url}/v1/turns", json={"text": "look"})).status_code == 201


@pytest.mark.failure("no worker polls the task queue ...")
async def test_gateway_without_a_worker_is_reported_by_doctor_readyz_and_page(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, task_queue: str, failure: Failure
) -> None:
    async with gateway_alone(clean_env, cli_server, task_queue), httpx2.AsyncClient(timeout=60) as http:
        url = load_settings().public_url
        ok, message = await found(cli, "worker")
        assert not ok
        failure.assert_seen(message)
        ready = await http.get(f"{url}/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        failure.assert_seen(ready.json()["worker"])
        assert "No worker is connected." in (await http.get(url)).text
        failure.follow("Start `signoff worker`")
        async with worker_alone(cli_server, task_queue):
            while not (await found(cli, "worker"))[0]:
                pass
            while (await http.get(f"{url}/readyz")).json()["worker"] != "ok":
                await asyncio.sleep(0.1)
            assert "No worker is connected." not in (await http.get(url)).text


def late() -> datetime:
    return system_clock() - timedelta(minutes=10)


@pytest.mark.failure("the clock of the store is ... s ahead of this machine's")
async def test_clock_difference_is_documented(served_cli: Cli, clean_env: pytest.MonkeyPatch, failure: Failure) -> None:
    with clean_env.context() as wrong:
        wrong.setattr(doctor_command, "store_clock_lead", partial(doctor_command.store_clock_lead, clock=late))
        failure.assert_seen((await found(served_cli, "clocks"))[1])
    failure.follow("Set both by NTP")
    assert (await found(served_cli, "clocks"))[0]


@pytest.mark.failure("... running turn began with another store")
async def test_turns_of_another_store_are_documented(
    served_cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path, failure: Failure
) -> None:
    await waiting_request(served_cli, "pay 90")
    with clean_env.context() as wrong:
        wrong.setenv("SIGNOFF_STORE_URL", f"sqlite:///{tmp_path}/new.db")
        failure.assert_seen(await until_found(served_cli, "turns", "began with another store"))
    failure.follow("Bring it back with all of its files")
    assert (await found(served_cli, "turns"))[0]


@pytest.mark.postgres
@pytest.mark.failure("PostgreSQL database ... did not answer as a store")
async def test_unavailable_store_is_documented(
    cli: Cli,
    clean_env: pytest.MonkeyPatch,
    cli_server: ServerHandle,
    task_queue: str,
    postgres_server: str,
    failure: Failure,
) -> None:
    urls = await made_roles(postgres_server)
    clean_env.setenv("SIGNOFF_STORE_URL", urls.owner)
    database = urls.owner.rpartition("/")[2]
    async with (
        gateway_alone(clean_env, cli_server, task_queue),
        worker_alone(cli_server, task_queue),
        httpx2.AsyncClient(base_url=load_settings().public_url, timeout=60) as http,
    ):
        card = await waiting_request(cli, "pay 95")
        await sql(
            f"{postgres_server}/postgres",
            f"ALTER DATABASE {database} ALLOW_CONNECTIONS false",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'",
        )
        # A terminated connection may still answer for a moment.
        while (away := await http.get("/readyz")).status_code == 200:
            await asyncio.sleep(0.1)
        failure.assert_seen(away.text)
        failure.follow("Bring the store back")
        await sql(f"{postgres_server}/postgres", f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
        while (await http.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.1)
        await cli("approve", card["code"])
        assert (away.status_code, "ok paid 95 to Ana" in (await cli("watch", card["turn"])).out) == (503, True)
