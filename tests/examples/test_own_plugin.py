import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from call_rig import CallRig, call_token
from gateway_fixtures import agent
from gateway_login import bearer, locked_rig

__all__ = ["agent"]
FOLDER = Path(__file__).parents[2] / "examples" / "own_plugin"
MANIFEST = """
version: 1
channels:
  duty: {kind: pager, url: "https://pager.example"}
routing: {default: [duty]}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("own_plugin") / "site"
    # Without a link to the checkout, whose build would leave files there.
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run((*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(FOLDER)), target.parent)
    return target


def run(command: tuple[str, ...], folder: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    done = subprocess.run(command, cwd=folder, env=kept | environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("named", [True, False])
def test_installed_plugin_is_loaded_if_the_settings_name_it(installed: Path, tmp_path: Path, named: bool) -> None:
    (tmp_path / "signoff.yaml").write_text(MANIFEST)
    names = ["signoff-pager:pager"] if named else ["telegram"]
    signoff = (sys.executable, "-m", "signoff.cli.main")
    environment = {"PYTHONPATH": str(installed), "SIGNOFF_PLUGINS": json.dumps(names)}
    (duty,) = json.loads(run((*signoff, "channels", "list", "--json"), tmp_path, **environment))
    if named:
        assert (duty["identity"], duty["problem"]) == ("pager", "")
    else:
        expected = "kind `pager`: add the plugin `signoff-pager:pager`, which is installed, to SIGNOFF_PLUGINS"
        assert duty["problem"] == expected
    checks = json.loads(run((*signoff, "doctor", "--json"), tmp_path, **environment))
    told = next(each["message"] for each in checks if each["name"] == "plugins")
    assert ("`signoff-pager:pager`" in told) is named


def test_installed_plugin_passes_the_channel_suite(installed: Path, tmp_path: Path) -> None:
    alone = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path))
    test = (sys.executable, "-m", "pytest", *alone, str(FOLDER / "test_pager.py"))
    shown = run(test, tmp_path, PYTHONPATH=str(installed))
    assert " passed" in shown, shown
    assert "failed" not in shown, shown


async def test_installed_plugin_adds_its_routes_to_the_gateway(
    installed: Path, agent: CallRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed)
    rig = locked_rig(agent.rig, plugins=("signoff-pager:pager",))
    page, coder = {"to": "17", "text": "The shop is down"}, bearer(await call_token(rig, "coder"))
    monkeypatch.setattr("signoff_pager.routes.WAIT_SECONDS", 0)
    asked = (await rig.http.post("/plugins/pager/pages", json=page, headers=coder)).json()
    assert asked["state"] == "waiting"
    await agent.decide(asked["call"], edited_args=page | {"to": "18"})
    asked = (await rig.http.post("/plugins/pager/pages", json=page, headers=coder)).json()
    assert asked["state"] == "permitted"
    use = f"/plugins/pager/pages/{asked['call']}/use"
    assert (await rig.http.post(use, json={}, headers=coder)).json() == page | {"to": "18"}
    again = await rig.http.post(use, json={}, headers=coder)
    assert (again.status_code, again.json()["code"]) == (409, "used")
    assert (await rig.http.post("/plugins/pager/pages", json=page)).status_code == 401
