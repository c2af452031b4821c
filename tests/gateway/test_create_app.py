from pathlib import Path

import pytest
from gateway_rig import http_of
from served_stack import MANIFEST

import signoff
from signoff.contracts.errors import ConfigError
from signoff.settings import Settings
from signoff.temporal.embedded_server import ServerHandle


def settings_of(tmp_path: Path) -> Settings:
    return Settings.model_validate({"state_dir": tmp_path / "state"})


async def test_application_opens_and_closes_its_resources(server: ServerHandle, tmp_path: Path) -> None:
    app = signoff.App(manifest=MANIFEST, settings=settings_of(tmp_path)).asgi(await server.connect())
    async with http_of(app) as http:
        async with app.router.lifespan_context(app):
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (200, "ready"), ready.text
            assert (await http.get("/v1/tools")).json()["tools"]
            assert "Approver" in (await http.get("/")).text
            assert (await http.post("/v1/nothing", json={})).status_code == 404
            assert app.state.deps.signer is not None
        assert (await http.get("/readyz")).json()["checks"]["server"] == "ok"
        assert "closed" in (await http.post("/v1/turns", json={"text": "hello"})).text


async def test_application_without_its_manifest_does_not_start(server: ServerHandle, tmp_path: Path) -> None:
    app = signoff.App(manifest=tmp_path / "none.yaml", settings=settings_of(tmp_path)).asgi(await server.connect())
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        async with app.router.lifespan_context(app):
            raise AssertionError("it started")
