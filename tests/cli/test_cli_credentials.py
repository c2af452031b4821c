import socket

import pytest
from cli_kit import Cli, assert_one_sentence, found
from oidc_provider import running_provider
from site_kit import Site, here, ready_site

from signoff.store.store import open_store

PROCESSES = ("worker", "gateway", "codec")
NOWHERE = "127.0.0.1:1"
WRONG = {
    "keys": ("holds no keys", "signoff keys create"),
    "open keys": ("other users may read or change it", "chmod 600"),
    "store": ("store_url", "postgresql://USER@HOST/NAME"),
    "new store": ("newer version", "install the newer one"),
    "profile": ("SIGNOFF_PROFILE", "production"),
    "people": ("nobody.yaml",),
    "host": ("SIGNOFF_HOST",),
    "server": ("no Temporal server answers", "TEMPORAL_ADDRESS"),
    "certificate": ("/nowhere/cert.pem", "TEMPORAL_"),
    "half a certificate": ("certificates", "TEMPORAL_TLS_"),
    "namespace": ("there is no namespace", "temporal operator namespace create"),
}
OF_THE_SERVER = ("server", "certificate", "half a certificate", "namespace")


@pytest.mark.parametrize(
    ("process", "wrong"),
    [
        (process, wrong)
        for process in PROCESSES
        for wrong in WRONG
        # A worker listens nowhere, and the codec server does not ask Temporal.
        if (process, wrong) != ("worker", "host") and not (process == "codec" and wrong in OF_THE_SERVER)
    ],
)
async def test_wrong_setting_is_refused_in_one_sentence(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, process: str, wrong: str
) -> None:
    await ready_site(cli, clean_env, site)
    here(clean_env, site, process)
    await make_wrong(clean_env, site, wrong)
    text = assert_one_sentence(await cli(process))
    assert all(word in text for word in WRONG[wrong]), text
    if wrong != "host":
        ran = await cli("doctor")
        assert (ran.code, WRONG[wrong][0] in ran.out) == (1, True), ran


async def make_wrong(clean_env: pytest.MonkeyPatch, site: Site, wrong: str) -> None:
    keys = site.folder / "encryption-keys.json"
    match wrong:
        case "keys":
            keys.write_text('{"keys": []}')
        case "open keys":
            keys.chmod(0o644)
        case "store":
            clean_env.setenv("SIGNOFF_STORE_URL", "mysql://somewhere/else")
        case "new store":
            async with open_store(site.env("gateway")["SIGNOFF_STORE_URL"]) as store:
                await store.run(
                    lambda connection: connection.exec_driver_sql("UPDATE signoff_version SET version_num = 'z'")
                )
        case "profile":
            clean_env.setenv("SIGNOFF_PROFILE", "productive")
        case "people":
            clean_env.setenv("SIGNOFF_PEOPLE", str(site.folder / "nobody.yaml"))
        case "host":
            clean_env.setenv("SIGNOFF_HOST", "192.0.2.1")
            for name in ("PUBLIC", "CODEC"):
                clean_env.setenv(f"SIGNOFF_{name}_URL", "https://approvals.example.com")
        case "server":
            clean_env.setenv("TEMPORAL_ADDRESS", NOWHERE)
        case "certificate":
            clean_env.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", "/nowhere/cert.pem")
            clean_env.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", "/nowhere/key.pem")
        case "half a certificate":
            clean_env.setenv("TEMPORAL_TLS_CLIENT_CERT_DATA", "a certificate without its key")
        case "namespace":
            clean_env.setenv("TEMPORAL_NAMESPACE", "another")


async def test_wrong_provider_is_found_by_doctor(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site) -> None:
    """Otherwise the first person to sign in would notice."""
    await ready_site(cli, clean_env, site)
    clean_env.setenv("SIGNOFF_OIDC_CLIENT_ID", "signoff")
    async with running_provider() as provider:
        clean_env.setenv("SIGNOFF_OIDC_ISSUER", provider.issuer)
        assert (await found(cli, "sign-in provider"))[0]
        provider.discovery["issuer"] = "https://login.example.com"
        ok, told = await found(cli, "sign-in provider")
        assert (ok, "names another issuer" in told) == (False, True)
    ok, told = await found(cli, "sign-in provider")
    assert (ok, "check SIGNOFF_OIDC_ISSUER" in told) == (False, True)


async def test_port_in_use_is_reported_with_its_setting(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site) -> None:
    await ready_site(cli, clean_env, site)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for process, setting in (("gateway", "SIGNOFF_PORT"), ("codec", "SIGNOFF_CODEC_PORT")):
            here(clean_env, site, process)
            clean_env.setenv(setting, port)
            assert f"pass --port or set {setting}" in assert_one_sentence(await cli(process))
