import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from activity_kit import TURN, environment, run, summary, task_for, worker_deps
from tables import table
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.activities import capability_backends
from signoff.activities.capability_backends import (
    HttpNetwork,
    TenantStorage,
    built_in_backends,
    check_backends,
    grant_capabilities,
    handed_out_secrets,
)
from signoff.activities.outcome_activity import OutcomeActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.redaction import redact_secrets
from signoff.contracts.activity_messages import OutcomeTask, ToolReply
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import OUTCOME
from signoff.keys.secrets import SecretProvider
from signoff.keys.tls_trust import load_trust
from signoff.registry.capabilities import (
    KINDS,
    Backend,
    Capabilities,
    CapabilityError,
    GrantedCapabilities,
    Network,
    Storage,
)
from signoff.registry.hooks import Happened
from signoff.registry.tool import Handler, Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.worker import build_deps

LEDGER = Ledger()


def tool(handler: Handler | None = None, requires_approval: bool = False, **declared: Any) -> Tool:
    fields: dict[str, Any] = {"capabilities": Capabilities(**declared)}
    return pay_tool(LEDGER, requires_approval, **fields | ({"handler": handler} if handler else {}))


def deps_with(store: Store, declared: Tool, **backends: Backend) -> WorkerDeps:
    made = worker_deps(store, declared)
    return WorkerDeps(**{**vars(made), "backends": backends})


async def called(store: Store, declared: Tool, **backends: Backend) -> tuple[str, Any]:
    return summary(await run(deps_with(store, declared, **backends), declared, task_for(declared)))


@pytest.mark.row("E19", "Q7")
async def test_handler_receives_the_declared_capabilities(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")

    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        given = context.capabilities
        await given.storage.write("paid/last.txt", (await given.secrets.get("TOKEN")).encode())
        return [(await given.storage.read("paid/last.txt")).decode(), sorted(given.by_kind)]

    declared = tool(handler, secrets=("TOKEN",), storage=True)
    backends = built_in_backends(tmp_path)
    assert set(backends) == {"network", "storage", "process", "fs_reach"} < set(KINDS)
    assert await called(store, declared, **backends) == ("ok", '["[hidden]",["secrets","storage"]]')
    assert (tmp_path / "main" / "paid" / "last.txt").read_text() == "s3cret"


@pytest.mark.row("E16")
@table("kind", "process", "fs_reach", "attachments", "storage")
async def test_capability_without_a_backend_makes_the_tool_not_available(store: Store, kind: str) -> None:
    declared = tool(**{kind: {"fs_reach": ("/srv",), "process": ("git",)}.get(kind, True)})
    before = len(LEDGER.rows)
    backends = {each: backend for each, backend in built_in_backends().items() if each != kind}
    reply = await run(deps_with(store, declared, **backends), declared, task_for(declared))
    assert reply.outcome is not None
    assert (reply.outcome.code, reply.outcome.gate) == ("not_available", "capabilities")
    assert len(LEDGER.rows) == before


async def test_custom_backend_is_used(store: Store) -> None:
    class Attachments:
        def resolve(self, declared: Capabilities, tenant: str) -> object:
            return f"attachments of {tenant}"

    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        return context.capabilities.other("attachments")

    declared = tool(handler, attachments=True)
    assert await called(store, declared, attachments=Attachments()) == ("ok", "attachments of main")


def reach_for(kind: str) -> Any:
    async def reach(given: GrantedCapabilities) -> Any:
        return getattr(given, kind) if kind != "attachments" else given.other(kind)

    return reach


@pytest.mark.row("E47")
@table(
    ("reach", "words"),
    (lambda given: given.secrets.get("OTHER"), "SECRET_NOT_DECLARED: OTHER"),
    (lambda given: given.secrets.get("UNSET_TOKEN"), "SECRET_NOT_SET: UNSET_TOKEN"),
    (reach_for("network"), "HOST_NOT_ALLOWED: the tool does not declare `network`"),
    (reach_for("storage"), "PATH_NOT_REACHABLE: the tool does not declare `storage`"),
    (reach_for("process"), "BINARY_NOT_ALLOWED: the tool does not declare `process`"),
    (reach_for("fs_reach"), "PATH_NOT_REACHABLE: the tool does not declare `fs_reach`"),
    (reach_for("attachments"), "NOT_DECLARED: the tool does not declare `attachments`"),
)
async def test_undeclared_access_fails_the_call_with_its_code(store: Store, reach: Any, words: str) -> None:
    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        await reach(context.capabilities)

    code, text = await called(store, tool(handler, secrets=("UNSET_TOKEN",)), **built_in_backends())
    assert code == "execution_failed"
    assert words in text


async def test_tool_without_capabilities_receives_none(store: Store) -> None:
    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        with pytest.raises(CapabilityError):
            _ = context.capabilities.secrets
        return dict(context.capabilities.by_kind)

    assert await called(store, tool(handler), **built_in_backends()) == ("ok", "{}")


def folder(root: Path, tenant: str = "main") -> Storage:
    return grant_capabilities({"storage": TenantStorage(root)}, SecretProvider(), tool(storage=True), tenant).storage


@pytest.mark.row("F16")
async def test_each_tenant_has_its_own_files(tmp_path: Path) -> None:
    mine, theirs = folder(tmp_path), folder(tmp_path, "other")
    await mine.write("a/b.txt", b"mine")
    await theirs.write("a/b.txt", b"theirs")
    await mine.write("a/b.txt", b"mine again")
    assert (await mine.read("a/b.txt"), await theirs.read("a/b.txt")) == (b"mine again", b"theirs")
    assert await mine.list() == ("a/b.txt",)
    await mine.delete("a/b.txt")
    await mine.delete("a/b.txt")
    assert (await mine.list(), await theirs.list()) == ((), ("a/b.txt",))
    with pytest.raises(FileNotFoundError):
        await mine.read("a/b.txt")


@table(
    "path",
    *(
        "",
        ".",
        "/etc/passwd",
        "../other/a",
        "a/../../other/a",
        "a/..",
        "a/../b",
        "out/secret",
        "a\0b",
        "a\\..\\b",
        "out",
    ),
    *("../" + "a" * 300, "/".join(("out", "a" * 100, "b" * 100)), "{root}/files/main/a"),
)
async def test_paths_outside_the_directory_of_the_tenant_are_rejected(tmp_path: Path, path: str) -> None:
    path = path.format(root=tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (tmp_path / "files" / "main").mkdir(parents=True)
    (tmp_path / "files" / "main" / "out").symlink_to(outside)
    files = folder(tmp_path / "files")
    for act in (files.read(path), files.write(path, b"x"), files.delete(path)):
        with pytest.raises(CapabilityError) as refused:
            await act
        assert (refused.value.code, str(refused.value)) == ("PATH_NOT_REACHABLE", f"PATH_NOT_REACHABLE: {path[:200]}")
    assert (outside / "secret").read_text() == "s"
    assert await files.list() == ()


async def test_invalid_tenant_name_has_no_files(tmp_path: Path) -> None:
    for tenant in ("", "..", "a/b"):
        with pytest.raises(CapabilityError, match=r"^PATH_NOT_REACHABLE: the turn has no tenant$"):
            await folder(tmp_path, tenant).write("a", b"x")


async def test_failed_write_leaves_the_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = folder(tmp_path)
    await files.write("a", b"before")

    def full(self: Path, target: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        await files.write("a", b"after")
    assert (await files.read("a"), await files.list()) == (b"before", ("a",))


def answering(request: httpx2.Request) -> httpx2.Response:
    if request.url.path == "/away":
        return httpx2.Response(302, headers={"Location": "https://evil.example/"})
    if request.url.path == "/down":
        raise httpx2.ReadTimeout("no answer from /down?key=s3cret")
    if request.url.path == "/garbled":
        return httpx2.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx2.ByteStream(b"no gzip"))
    if request.url.path == "/large":
        return httpx2.Response(200, content=b"x" * 100)
    found = {"method": request.method, "body": request.content.decode(), "header": request.headers.get("x-a")}
    return httpx2.Response(200, json={"asked": str(request.url), "waits": request.extensions["timeout"], **found})


def network(*hosts: str) -> Network:
    backend = HttpNetwork(httpx2.MockTransport(answering))
    return grant_capabilities({"network": backend}, SecretProvider(), tool(network=hosts), "main").network


@pytest.mark.row("Q7")
async def test_declared_hosts_are_reachable(tmp_path: Path) -> None:
    hosts = network("api.example.com", "db.example.com:8443", "localhost:8080")
    reply = await hosts.request("POST", "https://API.example.com/v1", headers={"X-A": "1"}, content=b"hi")
    body = reply.json()
    assert (reply.status, body["method"], body["body"], body["header"]) == (200, "POST", "hi", "1")
    assert set(body["waits"].values()) == {capability_backends.NETWORK_SECONDS} == {30.0}
    assert reply.headers["content-type"] == "application/json"
    assert '"asked"' in reply.text
    for url in ("https://api.example.com:443/", "https://db.example.com:8443/", "http://localhost:8080/"):
        assert (await hosts.request("GET", url)).status == 200


LONG = f"https://{'a.' * 110}example/"


@pytest.mark.row("E47")
@table(
    ("url", "expected"),
    ("https://evil.example/", "https://evil.example:443"),
    ("https://api.example.com.evil.example/", "https://api.example.com.evil.example:443"),
    ("https://evil.example/api.example.com", "https://evil.example:443"),
    ("https://api.example.com@evil.example/", "https://evil.example:443"),
    ("https://user:word@api.example.com/", "https://api.example.com:443"),
    ("https://api.example.com:8443/", "https://api.example.com:8443"),
    ("http://api.example.com/", "http://api.example.com:80"),
    ("http://localhost/", "http://localhost:80"),
    ("ftp://api.example.com/", "ftp://api.example.com:0"),
    ("//api.example.com/", "://api.example.com:0"),
    ("api.example.com", "://:0"),
    ("https://[::1", "this is no address"),
    ("", "://:0"),
    (LONG, LONG[:200]),
)
async def test_undeclared_hosts_are_rejected(url: str, expected: str) -> None:
    with pytest.raises(CapabilityError) as refused:
        await network("api.example.com", "localhost:8080").request("GET", url)
    assert (refused.value.code, str(refused.value)) == ("HOST_NOT_ALLOWED", f"HOST_NOT_ALLOWED: {expected}")


@table("name", "Host", "host", "HOST")
async def test_host_header_of_a_handler_is_rejected(name: str) -> None:
    """A `host` header would make a proxy in front of a declared host forward the request elsewhere."""
    with pytest.raises(CapabilityError, match=r"^HOST_NOT_ALLOWED: a `host` header is not the handler's to give$"):
        await network("api.example.com").request("GET", "https://api.example.com/", headers={name: "evil.example"})


async def test_redirect_is_returned_and_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = network("api.example.com")
    reply = await hosts.request("GET", "https://api.example.com/away")
    assert (reply.status, reply.headers["location"]) == (302, "https://evil.example/")
    monkeypatch.setattr(capability_backends, "REPLY_BYTES", 100)
    assert (await hosts.request("GET", "https://api.example.com/large")).body == b"x" * 100
    monkeypatch.setattr(capability_backends, "REPLY_BYTES", 99)
    with pytest.raises(CapabilityError, match="REPLY_TOO_LARGE"):
        await hosts.request("GET", "https://api.example.com/large")


async def test_declared_hosts_are_verified_by_the_common_trust_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a private authority would not apply to calls of handlers."""
    trusts: list[Any] = []
    client = httpx2.AsyncClient

    def made(**fields: Any) -> httpx2.AsyncClient:
        trusts.append(fields.get("verify"))
        return client(**fields)

    monkeypatch.setattr(httpx2, "AsyncClient", made)
    assert (await network("api.example.com").request("GET", "https://api.example.com/")).status == 200
    assert trusts == [load_trust()]


async def test_secrets_are_read_on_use(monkeypatch: pytest.MonkeyPatch) -> None:
    given: GrantedCapabilities = grant_capabilities({}, SecretProvider(), tool(secrets=("TOKEN",)), "main")
    with contextlib.suppress(KeyError):
        monkeypatch.delenv("TOKEN")
    with pytest.raises(CapabilityError, match="SECRET_NOT_SET: TOKEN"):
        await given.secrets.get("TOKEN")
    for value in ("one", "two"):
        monkeypatch.setenv("TOKEN", value)
        assert await given.secrets.get("TOKEN") == value


@table("again", True, False)
async def test_probe_has_the_capabilities_of_its_tool(
    store: Store, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")

    async def probe(args: dict[str, Any], context: ToolContext) -> Any:
        return Happened(await context.capabilities.secrets.get("TOKEN"))

    declared = pay_tool(LEDGER, False, probe=probe, capabilities=Capabilities(secrets=("TOKEN",)))
    task = task_for(declared)
    key = ticket_key(task.digest, 1)
    await store.claim(key, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    there = deps_with(store, declared, **built_in_backends())
    if again:
        reply = await run(there, declared, task)
    else:
        lost = OutcomeTask(run=task)
        reply = await environment(OUTCOME, activity_id="17").run(OutcomeActivity(there).outcome, lost)
    assert told_of(reply) == ("ok", "[hidden]")


def told_of(reply: ToolReply) -> tuple[str, Any]:
    assert reply.outcome is not None
    return reply.outcome.code, reply.outcome.value.inline


async def test_error_of_a_handler_hides_its_secrets(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")

    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        raise ValueError(f"https://api.example.com/?key={await context.capabilities.secrets.get('TOKEN')} answered 500")

    code, text = await called(store, tool(handler, secrets=("TOKEN",)), **built_in_backends())
    assert code == "execution_failed"
    assert "https://api.example.com/?key=[hidden] answered 500" in text


@pytest.mark.parametrize("lost", [False, True])
async def test_returned_failure_hides_its_secrets(store: Store, monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")

    async def failure(context: ToolContext) -> ToolFailure:
        return ToolFailure(f"?key={await context.capabilities.secrets.get('TOKEN')} answered 403", "not_available")

    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        return await failure(context)

    async def probe(args: dict[str, Any], context: ToolContext) -> Any:
        return Happened(await failure(context))

    declared = pay_tool(LEDGER, False, handler=handler, probe=probe, capabilities=Capabilities(secrets=("TOKEN",)))
    task = task_for(declared)
    if lost:
        await store.claim(ticket_key(task.digest, 1), workflow=TURN.workflow_id, call="c1.1", tool="pay")
    reply = await run(deps_with(store, declared, **built_in_backends()), declared, task)
    assert told_of(reply) == ("not_available", "?key=[hidden] answered 403")


async def test_secret_contained_in_another_is_hidden_with_the_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of use does not matter: otherwise the ends of the longer secret would be readable."""
    given = grant_capabilities({}, SecretProvider(), tool(secrets=("SHORT", "LONG")), "main")
    for name, value in (("SHORT", "zz9"), ("LONG", "azz9b")):
        monkeypatch.setenv(name, value)
        await given.secrets.get(name)
    assert redact_secrets("azz9b and zz9", handed_out_secrets(given, SecretProvider())) == "[hidden] and [hidden]"


async def test_escaped_forms_of_a_secret_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    given = grant_capabilities({}, SecretProvider(), tool(secrets=("KEY",)), "main")
    key = 'BEGIN\nabc"d\\e\nEND'
    monkeypatch.setenv("KEY", key)
    await given.secrets.get("KEY")
    assert (
        redact_secrets(f"{key} {key!r} {json.dumps(key)}", handed_out_secrets(given, SecretProvider()))
        == "[hidden] '[hidden]' \"[hidden]\""
    )


async def test_backend_for_secrets_is_rejected(store: Store) -> None:
    """Secrets from a second source would not be redacted."""
    with pytest.raises(ConfigError, match="give `secrets` in place of a backend"):
        await build_deps(catalog_of([], actors=[]), store, backends={"secrets": TenantStorage(Path())})


async def test_unreadable_secret_is_a_retryable_connection_error(store: Store) -> None:
    class Away:
        async def read(self, name: str, tenant: str) -> str | None:
            raise RuntimeError("token hunter2 expired")

    given = grant_capabilities({}, SecretProvider(Away()), tool(secrets=("secret:a",)), "main")
    with pytest.raises(ConnectionError, match=r"^the secret `a` cannot be read now: RuntimeError$"):
        await given.secrets.get("secret:a")


async def test_tenant_secret_is_read_for_that_tenant(store: Store) -> None:
    class ByTenant:
        async def read(self, name: str, tenant: str) -> str | None:
            return f"{name} of {tenant}"

    for tenant in ("one", "two"):
        given = grant_capabilities({}, SecretProvider(ByTenant()), tool(secrets=("secret:key",)), tenant)
        assert await given.secrets.get("secret:key") == f"key of {tenant}"


async def test_failing_backend_fails_only_the_call(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def resolve(self, declared: Capabilities, tenant: str) -> object:
            raise RuntimeError("no quota")

    async def handler(args: dict[str, Any], context: ToolContext) -> Any:
        return context.capabilities.storage

    code, text = await called(store, tool(handler, storage=True), storage=Broken())
    assert code == "execution_failed"
    assert "PATH_NOT_REACHABLE" in text
    assert caplog.messages[0] == "no storage for tool pay (RuntimeError)"


async def test_unresponsive_host_is_a_connection_error() -> None:
    """Python's own error class lets a repeatable tool retry."""
    with pytest.raises(ConnectionError) as failed:
        await network("api.example.com").request("GET", "https://api.example.com/down?key=s3cret")
    assert str(failed.value) == "api.example.com: ReadTimeout"


async def test_unreadable_reply_is_a_connection_error() -> None:
    with pytest.raises(ConnectionError) as failed:
        await network("api.example.com").request("GET", "https://api.example.com/garbled")
    assert str(failed.value) == "api.example.com: DecodingError"


@table(
    ("queue", "program", "refused"),
    ("", "no-such-program", True),
    ("here", "no-such-program", True),
    ("elsewhere", "no-such-program", False),
    ("here", "sh", False),
)
def test_worker_does_not_start_if_a_program_of_its_tools_is_missing(queue: str, program: str, refused: bool) -> None:
    tools = [tool(process=("no-such-program",)), tool(network=("example.org",)), tool(process=(program,))]
    placed = [replace(each, task_queue=name) for each, name in zip(tools, ("elsewhere", "here", queue), strict=True)]
    if not refused:
        check_backends(placed, built_in_backends(), "here")
        return
    with pytest.raises(ConfigError, match=r"tool `pay` needs .*no-such-program") as error:
        check_backends(placed, built_in_backends(), "here")
    assert (error.value.context["tool_name"], error.value.context["field"]) == ("pay", "capabilities.process")
