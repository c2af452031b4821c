import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence, waiting_request
from dev_process import Dev

MANIFEST = """\
version: 1
actors:
  desk: {model: "%s", instructions: Help., tools: [refund]}
tools:
  refund:
    handler: offline_refunds:refund
    scope: generalist
    effect: "Refund {amount} EUR to {customer}"
    requires_approval: true
"""
TOOLS = '''
async def refund(customer: str, amount: int) -> str:
    """Pay money back."""
    return f"{customer} got {amount} EUR"
'''


def write_project(folder: Path, model: str) -> None:
    (folder / "signoff.yaml").write_text(MANIFEST % model, encoding="utf-8")
    (folder / "offline_refunds.py").write_text(TOOLS, encoding="utf-8")


@pytest.fixture
async def dev(cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Dev]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        clean_env.delenv(name, raising=False)
    installation = Dev(tmp_path, tmp_path / "signoff.yaml")
    yield installation
    if installation.process is not None and installation.process.returncode is None:
        await installation.end(signal.SIGKILL)


@pytest.mark.timeout(300)
async def test_dev_without_a_key_asks_for_approval_and_answers(dev: Dev, cli: Cli) -> None:
    write_project(dev.folder, "openai:gpt-5")
    await dev.start()
    output = "".join(dev.lines)
    assert "Model     offline, because OPENAI_API_KEY is not set; it understands `refund CUSTOMER AMOUNT`\n" in output
    assert "signoff ask 'refund ana 50'\n" in output
    unsure = (await cli("ask", "give Ana her 50 euros back")).out
    assert "No call: " in unsure
    assert "refund CUSTOMER AMOUNT" in unsure
    approved = await waiting_request(cli, "refund ana 50")
    assert approved["effect"] == "Refund 50 EUR to ana"
    assert "no real model was asked" in (await cli("show", approved["code"])).out
    assert (await cli("approve", approved["code"])).code == 0
    assert "desk: ana got 50 EUR" in (await cli("watch", approved["turn"])).out
    exported = (await cli("audit", "export", "--turn", approved["turn"])).out
    offline = [line for line in exported.splitlines() if '"model":"offline"' in line.replace("\\", "").replace(" ", "")]
    assert ['"proposal"' in line for line in offline] == [True]
    denied = await waiting_request(cli, "refund bo 60")
    assert (await cli("deny", denied["code"], "--reason", "too much")).code == 0
    assert "desk: `refund` was denied by approver: too much" in (await cli("watch", denied["turn"])).out


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        ("opnai:gpt-5", (), "there is no model `opnai:gpt-5`; did you mean `openai`?"),
        ("openai:", (), "there is no model `openai:`"),
        ("openai:gpt-5", ("--model", "openai-chat:small"), "set `OPENAI_API_KEY`"),
    ],
)
async def test_dev_refuses_misspelt_models_and_a_missing_key_with_a_chosen_model(
    dev: Dev, cli: Cli, model: str, arguments: tuple[str, ...], words: str
) -> None:
    write_project(dev.folder, model)
    ports = ("--port", str(dev.ports[0]), "--temporal-port", str(dev.ports[1]), "--no-ui")
    ran = await cli("dev", str(dev.manifest), *ports, *arguments)
    assert words in ran.err
    assert ran.code == 1


async def test_validate_reports_the_missing_key(dev: Dev, cli: Cli) -> None:
    write_project(dev.folder, "openai:gpt-5")
    message = assert_one_sentence(await cli("manifest", "validate", str(dev.manifest)))
    assert "needs a key: set `OPENAI_API_KEY`" in message
