import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from tables import table
from temporalio.client import Client as TemporalClient
from temporalio.worker import Worker

import signoff
from signoff.app import App
from signoff.contracts.errors import ConfigError
from signoff.settings import Settings, load_settings
from signoff.temporal.embedded_server import ServerHandle, free_port
from signoff.testing import Completion, CompletionRequest, ScriptedModel, calls, last_user_text, respond, results
from signoff.worker import worker_deployment


def react(request: CompletionRequest) -> Completion:
    if told := results(request):
        return respond(f"{told[-1].code}: {told[-1].note or told[-1].value}")
    return calls(("refund", {"customer": "ana", "amount": 50.0}))


MODEL = ScriptedModel(react)


def an_app(**declarations: Any) -> App:
    app = App(model=f"scripted:{__name__}:MODEL", **declarations)

    @app.tool(effect="Refund {amount} EUR to {customer}", auto_approve_if="args.amount <= 10.0")
    async def refund(customer: str, amount: float, ctx: signoff.ToolContext) -> str:
        """Refund a customer."""
        return f"refunded {amount} to {customer}, approved by {ctx.decided_by}"

    app.actor("clerk", tools=[refund])
    return app


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_app_under_test_requests_approval_and_runs_approved_calls(outside: None) -> None:
    async with an_app().test(ScriptedModel(react)) as test:
        turn = await test.say("refund ana 50")
        request = await turn.request()
        assert request.card.effect == "Refund 50 EUR to ana"
        assert (await test.approve(request)).status == "accepted"
        assert "refunded 50.0 to ana, approved by approver" in (await turn.result()).text
        other = await test.say("refund ana 50")
        await test.deny(await other.request(), "not today")
        assert "not today" in (await other.result()).text
        late = await test.say("refund ana 50")
        await late.request()
        await late.skip(hours=25)
        assert "Nobody answered in time." in (await late.result()).text


async def test_approvers_of_code_and_manifest_both_decide(outside: None, tmp_path: Path) -> None:
    manifest = tmp_path / "over.yaml"
    manifest.write_text(
        """
version: 1
tools: {refund: {requires_approval: {approvers: [user:bo]}}}
people: [{id: guest}, {id: ana}, {id: bo}]
"""
    )
    async with an_app(manifest=manifest, approvers=["user:ana"]).test(ScriptedModel(react)) as test:
        turn = await test.say("refund ana 50")
        request = await turn.request()
        assert [group.of for group in request.groups] == [("user:bo",), ("user:ana",)]
        first = await test.approve(request, by="bo")
        assert (first.status, request.quorum) == ("counted", 2)
        assert (await turn.calls())[0].state == "waiting"
        assert (await test.approve(request, by="ana")).status == "accepted"
        assert "refunded 50.0 to ana, approved by bo, ana" in (await turn.result()).text


async def test_pages_show_the_name_of_the_app(outside: None) -> None:
    async with an_app(name="Depot <west>").test() as test, httpx2.AsyncClient() as browser:
        page = (await browser.get(test.client.url)).text
    assert "Depot &lt;west&gt;</title>" in page
    assert "Depot &lt;west&gt;</a>" in page
    assert "<west>" not in page


@table("name", "two\nlines", "x" * 41)
def test_name_of_an_app_is_one_short_line(name: str) -> None:
    with pytest.raises(ConfigError, match=r"test_app\.py:.*one line of at most 40 characters"):
        an_app(name=name)


async def test_app_under_test_without_a_model_answers_offline_for_any_provider(
    outside: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    app = an_app()
    app.actor("till", model="openai:gpt-5", tools=["refund"])
    async with app.test() as test:
        turn = await test.say("refund ana 9", actor="till")
        assert (await turn.result()).text == "refunded 9.0 to ana, approved by "


async def test_app_under_test_ignores_the_surrounding_settings(clean_env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hostile = {
        "PROFILE": "production",
        "APP": "nowhere:app",
        "MANIFEST": "nowhere.yaml",
        "PEOPLE": "nowhere.yaml",
        "STORE_URL": "postgresql://nowhere.invalid/x",
        "MODEL": "openai:gpt-5",
        "SECRETS": "nowhere:secrets",
        "PLUGINS": '["nowhere:plugin"]',
        "TASK_QUEUE": "elsewhere",
        "BUILD_ID": "1",
        "OIDC_ISSUER": "https://nowhere.invalid",
        "PUBLIC_URL": "https://nowhere.invalid",
        "TENANT_LIMITS": "*: waiting=0",
        "TOKEN": "sgn_somebody",
    }
    for name, value in hostile.items():
        clean_env.setenv(f"SIGNOFF_{name}", value)
    clean_env.setenv("TEMPORAL_ADDRESS", "nowhere.invalid:7233")
    clean_env.setenv("TEMPORAL_NAMESPACE", "nowhere")
    (tmp_path / "signoff.toml").write_text("port = 1\nraw_answers = 'nonsense'\n")
    async with an_app().test(ScriptedModel(react), event_days=1) as test:
        turn = await test.say("refund ana 50")
        assert (await test.approve(await turn.request())).status == "accepted"
        assert (await turn.result()).calls[0].code == "ok"
    with pytest.raises(ConfigError, match="event_dayz"):
        async with an_app().test(event_dayz=1):
            pass


async def test_app_under_test_opens_no_channel_and_sends_no_event(
    outside: None, caplog: pytest.LogCaptureFixture
) -> None:
    app = signoff.App(model=f"scripted:{__name__}:MODEL")

    @app.tool(effect="Refund {amount} EUR to {customer}", requires_approval={"notify": ["chat"]})
    def refund(customer: str, amount: float) -> str:
        """Refund a customer."""
        return "done"

    app.actor("clerk", tools=[refund])
    app.channel("chat", kind="slack", token="env:NO_SUCH_TOKEN", app_token="env:NO_SUCH_TOKEN")
    app.subscribe("*", to="https://events.example.com", secret="env:NO_SUCH_SECRET")
    async with app.test() as test:
        turn = await test.say("refund ana 50")
        await test.approve(await turn.request())
        assert (await turn.result()).calls[0].code == "ok"
    assert [record.getMessage() for record in caplog.records if "NO_SUCH" in record.getMessage()] == []


async def test_app_with_too_few_people_names_the_place_for_more(outside: None) -> None:
    app = an_app(people=[{"id": "ana", "roles": ["finance"]}])

    @app.tool(requires_approval={"approvers": ["role:finance"], "quorum": 2})
    def pay(amount: float) -> str:
        """Pay an amount."""
        return "paid"

    with pytest.raises(ConfigError, match=r"at most 1: lower `quorum`, or add people to `App\(people=\.\.\.\)`"):
        async with app.test():
            pass


def watch(request: CompletionRequest) -> Completion:
    if results(request):
        return respond("done")
    if last_user_text(request).startswith("An event happened."):
        return calls(("file", {"note": "paid"}))
    return calls(("refund", {"customer": "ana", "amount": 5.0}))


async def test_app_under_test_starts_an_actor_for_an_event(outside: None) -> None:
    app, filed = an_app(), asyncio.Queue[str]()

    @app.tool
    async def file(note: str, ctx: signoff.ToolContext) -> str:
        """File a note."""
        filed.put_nowait(f"{note} for {ctx.user_id}")
        return "filed"

    app.actor("watcher", tools=[file])
    app.subscribe("tool_call:refund", to="actor:watcher", name="refunds")
    app.subscribe("tool_call:file", to="actor:watcher", name="files")
    async with app.test(ScriptedModel(watch)) as test:
        # A subscription starts with the events after its first read.
        for _ in range(30):
            await (await test.say("refund ana 5", actor="clerk")).result()
            with contextlib.suppress(TimeoutError):
                assert await asyncio.wait_for(filed.get(), 2) == "paid for subscription:refunds"
                break
        else:
            pytest.fail("the watcher did not start")
        refunds = (await test.client.events(limit=500)).events
        assert {each.actor for each in refunds if each.type == "tool_call:file"} <= {"watcher"}


@contextlib.asynccontextmanager
async def served(app: Any, port: int) -> AsyncIterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="on"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.02)
    try:
        yield
    finally:
        server.should_exit = True
        await running


@pytest.mark.parametrize("by", ["worker", "plugin"])
async def test_worker_and_gateway_of_one_app_decide_a_call(
    outside: None, server: ServerHandle, monkeypatch: pytest.MonkeyPatch, task_queue: str, by: str
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    port = free_port()
    app = an_app(name="Depot", settings=Settings(port=port, task_queue=task_queue, encryption=False))
    async with contextlib.AsyncExitStack() as stack:
        if by == "worker":
            await stack.enter_async_context(app.worker())
        else:
            plugin = await stack.enter_async_context(app.plugin())
            temporal = await TemporalClient.connect(server.address, plugins=[plugin])
            await stack.enter_async_context(Worker(temporal, task_queue=task_queue))
        await stack.enter_async_context(served(app.asgi(), port))
        browser = await stack.enter_async_context(httpx2.AsyncClient())
        assert "Depot</title>" in (await browser.get(f"http://127.0.0.1:{port}")).text
        client = await stack.enter_async_context(signoff.Client(f"http://127.0.0.1:{port}"))
        turn = await client.start("refund ana 50")
        async for request in turn.pending():
            await client.approve(request)
        assert "refunded 50.0 to ana" in (await turn.result()).text


async def test_worker_refuses_a_client_with_the_plugin(outside: None, server: ServerHandle, task_queue: str) -> None:
    app = an_app(settings=Settings(task_queue=task_queue, encryption=False))
    async with app.plugin() as plugin:
        temporal = await TemporalClient.connect(server.address, plugins=[plugin])
        with pytest.raises(ConfigError, match="run Temporal's `Worker` with it"):
            async with app.worker(temporal):
                pass


def test_reference_is_the_module_and_the_name_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    app = an_app()
    assert app.reference == ""
    monkeypatch.setattr(sys.modules[__name__], "shop", app, raising=False)
    assert app.reference == f"{__name__}:shop"


@table(
    ("version", "build_id", "expected"),
    ("2026-11-28", None, "2026-11-28"),
    ("2026-11-28", "b7", "b7"),
    ("", "b7", "b7"),
)
def test_version_of_an_app_is_the_build_id_of_its_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, build_id: str | None, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(deployment="shop", build_id=build_id)
    deployment = worker_deployment(an_app(version=version, settings=settings).installation())
    assert deployment is not None
    assert deployment.version.build_id == expected


def test_app_without_a_version_is_refused_in_a_deployment(outside: None) -> None:
    installation = an_app(settings=load_settings(deployment="shop")).installation()
    with pytest.raises(ConfigError, match=r"write `App\(version=\.\.\.\)`, or set SIGNOFF_BUILD_ID"):
        worker_deployment(installation)
