import asyncio
import json
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from app_server import running_app
from documents import ROOT
from gateway_rig import gateway_rig
from mcp_conformance import PACKAGES, TaskRequests, approvals, conformance_catalog, failed_checks
from mcp_rig import McpRig
from temporalio.client import Client

from signoff.store.store import open_store
from signoff.temporal.embedded_server import free_port

pytestmark = [pytest.mark.mcp_packages, pytest.mark.long]

NOT_SERVED = {
    "completion": ("completion-",),
    "logging": ("logging-", "tools-call-with-logging"),
    "prompts": ("prompts-", "caching: sep-2549-prompts-", "input-required-result-non-tool-request"),
    "resources": ("resources-", "caching: sep-2549-resources-"),
    "sampling and elicitation": (
        "tools-call-sampling",
        "tools-call-elicitation",
        "elicitation-",
        "input-required-result-",
        "server-stateless: sep-2575-server-rejects-undeclared-capability",
        "server-stateless: sep-2575-missing-capability-http-400",
        "server-stateless: sep-2575-http-server-no-independent-requests-on-stream",
        "server-stateless: sep-2575-server-no-log-without-loglevel",
        "tasks-lifecycle: sep-2663-tasks-get-status-failed",
        "tasks-dispatch-and-envelope: tasks-result-type-complete-on-non-task-responses",
    ),
    "images, audio and resources in results": (
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
    ),
    "progress of a tool's own": ("tools-call-with-progress",),
}
"""Features that docs/mcp.md lists as not served, with the prefixes of their checks."""
ALLOWED = tuple(each for beginnings in NOT_SERVED.values() for each in beginnings)
TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
)


@pytest.fixture(scope="module")
async def address(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Its waiting calls are approved."""
    folder = tmp_path_factory.mktemp("conformance")
    queue = f"conformance-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_rig(client, store, queue, catalog_of_ledger=conformance_catalog) as rig,
    ):
        port, app = free_port(), TaskRequests(rig.app)
        async with running_app(app, port), approvals(rig, app):
            yield f"http://127.0.0.1:{port}/mcp/coder"


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_served_features_conform(address: str, tmp_path: Path, version: str) -> None:
    failed = await failed_checks(address, tmp_path, ALLOWED, "--spec-version", version, "--suite", "all")
    assert failed == set()


@pytest.mark.parametrize("scenario", TASKS)
async def test_task_scenarios_of_the_suite_conform(address: str, tmp_path: Path, scenario: str) -> None:
    options = ("--scenario", scenario, "--force", "--spec-version", "2026-07-28")
    failed = await failed_checks(address, tmp_path, ALLOWED, *options)
    assert failed == set()


def test_unserved_features_are_documented() -> None:
    page = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8").replace("\n", " ")
    for words in NOT_SERVED:
        assert words in page.lower(), words


async def test_inspector_lists_and_calls_tools(mcp: McpRig) -> None:
    async def inspect(*options: str) -> dict[str, object]:
        words = ("node_modules/.bin/mcp-inspector", "--cli", f"{mcp.url}/mcp/coder", "--transport", "http")
        header = f"Authorization: Bearer {mcp.secret}"
        process = await asyncio.create_subprocess_exec(
            *words, "--header", header, *options, cwd=PACKAGES, stdout=PIPE, stderr=PIPE
        )
        printed, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        found: dict[str, object] = json.loads(printed)
        return found

    tools = (await inspect("--method", "tools/list"))["tools"]
    assert [each["name"] for each in tools] == ["broken", "look", "move", "pay"]  # type: ignore[attr-defined]
    called = await inspect("--method", "tools/call", "--tool-name", "pay", "--tool-arg", "amount=20")
    assert called["content"] == [{"type": "text", "text": "paid"}]
