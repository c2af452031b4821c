import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cli_kit import Cli, Ran, assert_one_sentence, found
from pydantic_core import from_json
from site_kit import Site, here, ready_site, token


def lose(path: Path) -> None:
    path.unlink()


async def test_each_process_names_its_missing_requirements(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site) -> None:
    here(clean_env, site, "gateway")
    assert "signoff keys create" in assert_one_sentence(await cli("gateway"))
    await cli("keys", "create")
    lose(site.folder / "gateway" / "signing-keys.json")
    lacks = assert_one_sentence(await cli("gateway"))
    assert "signoff keys create" in lacks
    assert "signoff token create" in lacks
    assert "SIGNOFF_PEOPLE" not in lacks
    await cli("keys", "create")
    lacks = assert_one_sentence(await cli("gateway"))
    assert "signoff keys create" not in lacks
    assert "signoff token create" in lacks
    here(clean_env, site, "worker")
    assert "signoff keys export" in assert_one_sentence(await cli("worker"))
    assert "is for development" in assert_one_sentence(await cli("dev"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"SIGNOFF_MANIFEST": "nobody.yaml"}, "`profile` is `production`, and this is missing: people"),
        ({"SIGNOFF_BUILD_ID": "7"}, "name it in SIGNOFF_DEPLOYMENT"),
        ({"SIGNOFF_VERSIONING": "pinned"}, "name it in SIGNOFF_DEPLOYMENT"),
        ({"SIGNOFF_TENANT_LIMITS": "main: waiting=many"}, "SIGNOFF_TENANT_LIMITS"),
    ],
)
async def test_validate_and_doctor_refuse_an_installation_that_no_worker_starts_with(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, tmp_path: Path, setting: dict[str, str], words: str
) -> None:
    await ready_site(cli, clean_env, site)
    (tmp_path / "nobody.yaml").write_text("version: 1\n")
    here(clean_env, site, "worker")
    assert (await cli("manifest", "validate")).code == 0
    for name, value in setting.items():
        clean_env.setenv(name, value)
    refused = assert_one_sentence(await cli("worker"))
    assert words in refused
    assert assert_one_sentence(await cli("manifest", "validate")) == refused
    wrong = [check["message"] for check in (await cli("doctor", "--json")).data if not check["ok"]]
    assert any(each in refused for each in wrong)


async def test_doctor_refuses_an_installation_that_no_gateway_starts_with(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site
) -> None:
    async def wrong(name: str) -> str:
        found = (await cli("doctor", "--json")).data
        return " ".join(check["message"] for check in found if check["name"] == name and not check["ok"])

    here(clean_env, site, "gateway")
    await cli("keys", "create")
    without_login = await wrong("gateway start")
    assert without_login in assert_one_sentence(await cli("gateway"))
    assert "signoff token create" in without_login
    await token(cli, "ana")
    assert await wrong("gateway start") == ""
    clean_env.setenv("SIGNOFF_OIDC_ISSUER", "https://login.example.com")
    half = await wrong("sign-in provider")
    assert half in assert_one_sentence(await cli("gateway"))
    assert "SIGNOFF_OIDC_CLIENT_ID" in half
    clean_env.setenv("SIGNOFF_OIDC_CLIENT_ID", "signoff")
    clean_env.setenv("SIGNOFF_OIDC_CLIENT_SECRET", "env:NOT_THERE")
    secret = await wrong("sign-in provider")
    assert secret in assert_one_sentence(await cli("gateway"))
    assert "oidc_client_secret" in secret


async def test_doctor_refuses_incomplete_provider_settings_before_the_first_start_in_development(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site
) -> None:
    here(clean_env, site, "gateway")
    clean_env.setenv("SIGNOFF_PROFILE", "development")
    clean_env.setenv("SIGNOFF_OIDC_ISSUER", "https://login.example.com")
    ok, told = await found(cli, "sign-in provider")
    assert (ok, told in assert_one_sentence(await cli("gateway"))) == (False, True)


async def test_doctor_refuses_an_empty_public_key_file(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site) -> None:
    await ready_site(cli, clean_env, site)
    here(clean_env, site, "worker")
    path = site.folder / "worker" / "public-keys.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"keys": []}))
    refused = assert_one_sentence(await cli("worker"))
    ok, told = await found(cli, "keys")
    assert (ok, "signoff keys export" in refused, "signoff keys export" in told) == (False, True, True)


async def test_worker_with_private_keys_does_not_start(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site) -> None:
    here(clean_env, site, "gateway")
    made = (await cli("keys", "create", "--json")).data
    clean_env.setenv("SIGNOFF_PUBLIC_KEYS", made["signing_keys"])
    assert "holds private keys, which no worker may have" in assert_one_sentence(await cli("worker"))


@pytest.mark.timeout(300)
async def test_worker_without_a_private_key_runs_approved_calls(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site
) -> None:
    here(clean_env, site, "gateway")
    first = (await cli("keys", "create", "--json")).data["id"]
    tokens = {name: await token(cli, name) for name in ("ana", "rui")}
    worker = site.folder / "worker"
    worker.mkdir()
    await cli("keys", "export", "--out", str(worker / "public-keys.json"))
    async with site.running("worker"):
        async with site.running("gateway"):
            assert await approved(site, tokens) == ("ok", first)
            key = (await cli("keys", "create", "--json")).data["id"]
            await cli("keys", "export", "--out", str(worker / "public-keys.json"))
        async with site.running("gateway"):
            assert await approved(site, tokens) == ("ok", key)
    assert [path.name for path in worker.glob("*keys*")] == ["public-keys.json"]
    logs = "".join(path.read_text() for path in site.folder.rglob("*.log"))
    private = from_json((site.folder / "gateway" / "signing-keys.json").read_bytes())["keys"]
    assert key in [each["id"] for each in private]
    assert not any(each["private"] in logs for each in private)
    assert not any(secret in logs for secret in tokens.values())


@pytest.mark.timeout(300)
async def test_command_line_with_a_token_uses_the_gateway(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site) -> None:
    here(clean_env, site, "gateway")
    await cli("keys", "create")
    tokens = {name: await token(cli, name) for name in ("ana", "rui")}
    looking = await token(cli, "ana", "read")
    worker = site.folder / "worker"
    worker.mkdir()
    await cli("keys", "export", "--out", str(worker / "public-keys.json"))
    for name in [*site.env("gateway")]:
        if name.startswith(("SIGNOFF_", "TEMPORAL_")):
            clean_env.delenv(name, raising=False)
    gateway = f"http://127.0.0.1:{site.port}"
    clean_env.setenv("SIGNOFF_PUBLIC_URL", gateway)

    async def run_as(person: str, *words: str) -> Ran:
        clean_env.setenv("SIGNOFF_TOKEN", tokens[person])
        return await cli(*words)

    assert "no gateway answers" in assert_one_sentence(await run_as("ana", "inbox"))
    async with site.running("worker"), site.running("gateway"):
        asked = await run_as("rui", "ask", "pay 420", "--no-wait", "--json")
        assert (asked.code, asked.data["tenant"]) == (0, "main")
        card = await waits(run_as, asked.data["turn"])
        assert (await run_as("rui", "inbox", "--json")).data == []
        shown = await run_as("ana", "show", card["code"])
        assert (shown.code, "Pay 420 EUR" in shown.out, "asked by" in shown.out) == (0, True, True)
        own = await run_as("rui", "approve", card["code"])
        assert (own.code, "you requested this yourself" in own.out or "may not" in own.out) == (1, True)
        other = await run_as("ana", "approve", card["code"], "--as", "rui")
        assert (other.code, "cannot act as `rui`" in other.out) == (1, True)
        clean_env.setenv("SIGNOFF_TOKEN", looking)
        assert "needs the scope `decide`" in assert_one_sentence(await cli("approve", card["code"]))
        both = await run_as("ana", "approve", card["code"], "ZZZ-ZZZ", "--json")
        assert (both.code, [each["status"] for each in both.data]) == (1, ["accepted", "refused"])
        watched = await run_as("rui", "watch", asked.data["id"])
        assert (watched.code, "Pay 420 EUR to Ana: ran" in watched.out) == (0, True)
        assert watched.out.count("Pay 420 EUR to Ana: ran") == 1
        second = await run_as("rui", "ask", "pay 430", "--no-wait", "--json")
        changed = (await waits(run_as, second.data["turn"]))["code"]
        edited = await run_as("ana", "approve", changed, "--set", "amount=431")
        assert (edited.code, "430 -> 431" in edited.out) == (0, True), edited
        assert (await run_as("rui", "show", second.data["id"], "--json")).data["turn"] == second.data["turn"]
        third = await run_as("rui", "ask", "pay 440", "--no-wait", "--json")
        denied = await run_as(
            "ana", "deny", (await waits(run_as, third.data["turn"]))["code"], "--reason", "no", "--json"
        )
        assert (denied.code, denied.data["verdict"]) == (0, "denied")
        assert "there is no" in assert_one_sentence(await run_as("ana", "show", "nothing"))
        assert "there is no actor" in assert_one_sentence(await run_as("rui", "ask", "pay 1", "--actor", "nobody"))
        follows = await run_as("rui", "ask", "pay 5")
        assert (follows.code, "ran by rule" in follows.out) == (0, True)
        clean_env.delenv("SIGNOFF_TOKEN")
        for words in (("ask", "pay 420"), ("inbox",), ("deny", "K7Q-2FM", "--reason", "no", "--as", "ana")):
            assert "put one of yours in SIGNOFF_TOKEN" in assert_one_sentence(await cli(*words))
        clean_env.setenv("SIGNOFF_TOKEN", "sgf_" + "x" * 40)
        assert "put one of yours in SIGNOFF_TOKEN" in assert_one_sentence(await cli("inbox"))
        page = await cli("show", "K7Q-2FM", "--url", f"{gateway}/login")
        assert "is not a gateway of this version" in assert_one_sentence(page)


async def test_token_is_not_sent_over_plain_http(cli: Cli, clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_TOKEN", "sgf_secret")
    text = assert_one_sentence(await cli("inbox", "--url", "http://approvals.example.com"))
    assert "is not https" in text
    assert "sgf_secret" not in text
    wrong = assert_one_sentence(await cli("inbox", "--url", "approvals"))
    assert "looks like https://" in wrong


async def waits(run_as: Callable[..., Awaitable[Ran]], turn: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for card in (await run_as("ana", "inbox", "--json")).data:
            if card["turn"] == turn:
                found: dict[str, Any] = card
                return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"turn {turn} never reached the inbox")


async def approved(site: Site, tokens: dict[str, str]) -> tuple[str, str]:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{site.port}", timeout=60) as http:

        async def send(method: str, url: str, person: str, **fields: Any) -> Any:
            answer = await http.request(method, url, headers={"authorization": f"Bearer {tokens[person]}"}, **fields)
            assert answer.status_code < 300, answer.text
            return answer.json()

        turn = (await send("POST", "/v1/turns", "rui", json={"text": "pay 420"}))["id"]
        decided = False
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            view = await send("GET", f"/v1/turns/{turn}", "rui")
            if view["result"] is not None:
                return view["result"]["calls"][0]["code"], view["requester"]["key_id"]
            waiting = [call["approval"] for call in view["calls"] if call["approval"] is not None]
            if waiting and not decided:
                url = f"/v1/approvals/{waiting[0]['id']}/decide"
                body = {"verdict": "approved", "question_hash": waiting[0]["question_hash"]}
                decided = (await send("POST", url, "ana", json=body))["status"] == "accepted"
            await asyncio.sleep(0.1)
    raise AssertionError(f"turn {turn} never ended")


async def test_worker_and_gateway_refuse_the_offline_model(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, tmp_path: Path
) -> None:
    await ready_site(cli, clean_env, site)
    manifest = tmp_path / "offline.yaml"
    manifest.write_text(
        "version: 1\nactors: {desk: {model: offline, instructions: Help.}}\npeople: [{id: ana, name: Ana}]\n"
    )
    for process in ("worker", "gateway"):
        here(clean_env, site, process)
        clean_env.setenv("SIGNOFF_MANIFEST", str(manifest))
        refused = assert_one_sentence(await cli(process))
        assert refused.startswith("`profile` is `production`, and the model `offline` is for first tries alone: name")
