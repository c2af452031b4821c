import json
import subprocess
import sys
import zipfile
from asyncio import to_thread
from pathlib import Path

from client_rig import SMALL, ClientRig

CLIENT = Path(__file__).parents[2] / "clients" / "python"
PROGRAM = """
import importlib.util, json, sys
from signoff_client import Gate, __version__
others = [name for name in ("signoff", "temporalio", "pydantic") if importlib.util.find_spec(name)]
with Gate(sys.argv[1], sys.argv[2]).call("refund", json.loads(sys.argv[3]), key="wheel") as call:
    if call:
        call.result = "refunded"
print(json.dumps([__version__, call.text, call.id, call.is_reported, others]))
"""


def run(*command: str, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def install(folder: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "built"), cwd=CLIENT)
    [wheel] = (folder / "built").iterdir()
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=folder)
    python = folder / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "-c", str(CLIENT.parents[1] / "constraints.txt"), str(wheel), cwd=folder)
    return python


async def test_wheel_runs_a_call_in_an_empty_environment(rig: ClientRig, tmp_path: Path) -> None:
    python = await to_thread(install, tmp_path)
    command = (str(python), "-I", "-c", PROGRAM, rig.url, rig.token, json.dumps(SMALL))
    version, text, call, is_reported, others = json.loads(await to_thread(run, *command, cwd=tmp_path))
    assert (text, is_reported, others) == ("refunded", True, [])
    assert (await rig.show(call))["result"] == "refunded"
    [wheel] = (tmp_path / "built").iterdir()
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
        licences = [name for name in opened.namelist() if name.endswith("LICENSE")]
    assert wheel.name == f"signoff_client-{version}-py3-none-any.whl"
    modules = [path for path in (CLIENT / "signoff_client").rglob("*") if path.suffix in (".py", ".typed")]
    assert held == {str(path.relative_to(CLIENT)) for path in modules}
    assert "signoff_client/py.typed" in held
    assert len(licences) == 1
