import pytest
from cli_kit import Cli, assert_one_sentence
from served_stack import MANIFEST, gateway_alone
from site_kit import Site, here, ready_site

from signoff.settings import exposure_warnings, load_settings
from signoff.temporal.embedded_server import ServerHandle

COMMANDS = {
    "dev": ("dev", "--no-ui"),
    "gateway": ("gateway",),
    "codec": ("codec",),
    "temporal-ui": ("temporal-ui", "http://127.0.0.1:1"),
}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.example.com"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_development_refuses_a_host_that_is_open_to_the_network(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, command: str, host: str
) -> None:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    clean_env.setenv("SIGNOFF_ENCRYPTION", "true")
    clean_env.setenv("TEMPORAL_ADDRESS", cli_server.address)
    clean_env.setenv("SIGNOFF_HOST", host)
    message = assert_one_sentence(await cli(*COMMANDS[command]))
    assert message.startswith(f"`{host}` is open to the network, and the development profile asks for no sign-in")
    assert "--unsafe-open" in message


async def test_doctor_reports_an_open_development_host(cli: Cli, clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_HOST", "0.0.0.0")
    checks = {each["name"]: each for each in (await cli("doctor", "--json")).data}
    assert checks["addresses"]["ok"] is False
    clean_env.setenv("SIGNOFF_UNSAFE_OPEN", "true")
    checks = {each["name"]: each for each in (await cli("doctor", "--json")).data}
    assert checks["addresses"]["ok"] is True
    assert "can approve as any person" in checks["addresses"]["message"]


async def test_unsafe_open_serves_the_network_and_logs_a_warning(
    cli: Cli,
    clean_env: pytest.MonkeyPatch,
    cli_server: ServerHandle,
    task_queue: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clean_env.setenv("SIGNOFF_HOST", "0.0.0.0")
    clean_env.setenv("SIGNOFF_UNSAFE_OPEN", "true")
    async with gateway_alone(clean_env, cli_server, task_queue):
        assert "can approve as any person" in caplog.text


@pytest.mark.parametrize(
    ("variable", "address", "reported"),
    [
        ("SIGNOFF_PUBLIC_URL", "http://approvals.example.com", True),
        ("SIGNOFF_CODEC_URL", "http://10.0.0.5:8301", True),
        ("SIGNOFF_TEMPORAL_UI", "http://temporal.example.com", True),
        ("SIGNOFF_PUBLIC_URL", "https://approvals.example.com", False),
        ("SIGNOFF_PUBLIC_URL", "http://127.0.0.1:8300", False),
    ],
)
async def test_production_under_plain_http_is_reported(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, variable: str, address: str, reported: bool
) -> None:
    await ready_site(cli, clean_env, site)
    here(clean_env, site, "gateway")
    clean_env.setenv(variable, address)
    (check,) = [each for each in (await cli("doctor", "--json")).data if each["name"] == "addresses"]
    assert check["ok"] is not reported
    assert (f"{variable} is `{address}`" in check["message"]) is reported
    assert bool(exposure_warnings(load_settings())) is reported


async def test_production_start_warns_of_plain_http(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await ready_site(cli, clean_env, site)
    here(clean_env, site, "gateway")
    clean_env.setenv("SIGNOFF_PUBLIC_URL", "http://approvals.example.com")
    clean_env.setenv("SIGNOFF_PORT", site.address.rpartition(":")[2])
    ran = await cli("gateway")
    assert "is in use" in ran.err
    assert "SIGNOFF_PUBLIC_URL is `http://approvals.example.com`" in caplog.text + ran.err
