import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from signoff.languages.catalogue import FOLDER
from signoff.languages.po import compile_po

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("activities/", "registry/", "workflows/", "worker.py")
"""The links in `src/signoff`."""


def run(*command: str, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a clone with files instead of links, as on Windows."""
    folder = tmp_path_factory.mktemp("wheel")
    run("git", "clone", "--quiet", "--config", "core.symlinks=false", str(ROOT), str(folder / "clone"), cwd=folder)
    # Uncommitted changes are tested as well.
    for name in ("pyproject.toml", "README.md"):
        (folder / "clone" / name).write_bytes((ROOT / name).read_bytes())
    assert not (folder / "clone/src/signoff/worker.py").is_symlink()
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder / "built"), cwd=folder / "clone")
    return folder / "built"


def installed_files() -> set[str]:
    listed = run("git", "ls-files", "-s", cwd=ROOT).splitlines()
    files = [line.split("\t")[1] for line in listed if not line.startswith("120000")]
    # The README pages of directories are for readers of the repository.
    files = [file for file in files if not file.endswith("/README.md")]
    inside = {file.removeprefix("src/") for file in files if file.startswith("src/signoff/")}
    return inside | {f"signoff/{file}" for file in files if file.startswith(LINKED)}


def compiled_name(file: str) -> str:
    return f"{file.removesuffix('.po')}.mo" if file.endswith(".po") else file


def test_wheel_holds_every_file_of_the_package_and_its_text(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    held = {name: data for name, data in files.items() if ".dist-info/" not in name}
    commands = next(data for name, data in files.items() if name.endswith("entry_points.txt"))
    assert set(held) == {compiled_name(file) for file in installed_files()}
    assert {"signoff/__init__.py", "signoff/py.typed", "signoff/gateway/app.py"} <= set(held)
    assert held["signoff/worker.py"] == (ROOT / "worker.py").read_bytes()
    assert held["signoff/workflows/options.py"] == (ROOT / "workflows/options.py").read_bytes()
    assert b"signoff = signoff.cli.main:main" in commands
    assert b"[signoff.plugins]" in commands


def test_wheel_holds_each_language_compiled_from_its_file(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        for file in sorted(FOLDER.glob("*.po")):
            expected = compile_po(file.read_text(encoding="utf-8"), file.name)
            assert wheel.read(f"signoff/languages/{file.stem}.mo") == expected


def test_wheel_build_fails_with_a_broken_language(built: Path, tmp_path: Path) -> None:
    run("git", "clone", "--quiet", str(built.parent / "clone"), str(tmp_path / "clone"), cwd=tmp_path)
    with (tmp_path / "clone/src/signoff/languages/de.po").open("a", encoding="utf-8") as file:
        file.write("this is wrong\n")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "built")]
    done = subprocess.run(build, cwd=tmp_path / "clone", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(r"de\.po:\d+: this is no text", done.stdout + done.stderr)


def test_sdist_holds_the_sources_of_a_wheel_and_no_link(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        members = sdist.getmembers()
    assert [each.name for each in members if each.issym() or each.islnk()] == []
    held = {each.name.partition("/")[2] for each in members}
    bare = {name: name.removeprefix("signoff/") for name in installed_files()}
    sources = {path if path.startswith(LINKED) else f"src/{name}" for name, path in bare.items()}
    assert sources | {"pyproject.toml", "LICENSE"} <= held
    assert held & {"src/signoff/worker.py", "src/signoff/activities"} == set()
