"""Builds wheel and sdist, in several ways that must produce the same bytes, and writes their checksums."""

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

CHECKSUMS: Final = "SHA256SUMS"
_LINK_MODE: Final = 0o120000
_NO_LINKS: Final = '''\
"""Refuses links, as a file system or a system without them does."""
import errno, os

def _refuse(*arguments, **options):
    raise OSError(errno.EPERM, "no links can be made here")

os.symlink = os.link = _refuse
'''


class BuildFault(Exception):
    """Explains in one sentence why the build must not be released."""


def without_links(folder: Path) -> dict[str, str]:
    """Stop every started Python from making links. `folder` gets the needed files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_NO_LINKS, encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


def build(root: Path, scratch: Path, out: Path, epoch: int, folder: str = ".") -> list[Path]:
    """Build `folder` of the commit at `root` into `out`. Return wheel and sdist.

    Builds them from a clone with links and from a clone without, and the wheel also from the sdist. Raises `BuildFault`
    if they differ by a byte or contain a link.
    """
    variables = {"SOURCE_DATE_EPOCH": str(epoch)}
    clone = _clone(root, scratch / "with-links", "true")
    plain = _hatchling(clone / folder, scratch / "built", variables)
    refused = variables | without_links(scratch / "refusing")
    clone = _clone(root, scratch / "without-links", "false")
    linkless = _hatchling(clone / folder, scratch / "built-without-links", refused)
    with tarfile.open(_one(plain, ".tar.gz")) as sdist:
        sdist.extractall(scratch / "sdist", filter="data")
    (unpacked,) = (scratch / "sdist").iterdir()
    again = _hatchling(unpacked, scratch / "built-of-sdist", refused, "-t", "wheel")
    for file in plain:
        _compare(file, linkless, "built where no link can be made")
    _compare(_one(plain, ".whl"), again, "built out of the sdist")
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for file in plain:
        if links := links_in(file):
            raise BuildFault(f"{file.name} holds links ({', '.join(links)}): see `tool.hatch.build` in pyproject.toml")
        found.append(file.rename(out / file.name))
    return found


def links_in(file: Path) -> list[str]:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return [each.filename for each in wheel.infolist() if (each.external_attr >> 16) & _LINK_MODE == _LINK_MODE]
    with tarfile.open(file) as sdist:
        return [each.name for each in sdist.getmembers() if each.issym() or each.islnk()]


def write_checksums(out: Path, files: Iterable[Path]) -> Path:
    """Use the format of `sha256sum --check`."""
    path = out / CHECKSUMS
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(files)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _clone(root: Path, folder: Path, links: str) -> Path:
    command = ("git", "clone", "--quiet", "--config", f"core.symlinks={links}", str(root), str(folder))
    subprocess.run(command, check=True)
    return folder


def _hatchling(source: Path, out: Path, variables: Mapping[str, str], *options: str) -> list[Path]:
    command = (sys.executable, "-m", "hatchling", "build", "-d", str(out), *options)
    done = subprocess.run(
        command, cwd=source, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildFault(f"hatchling builds nothing of {source.name}: {done.stderr.strip().splitlines()[-1]}")
    return sorted(out.iterdir())


def _one(files: Iterable[Path], suffix: str) -> Path:
    (found,) = (file for file in files if file.name.endswith(suffix))
    return found


def _compare(file: Path, others: Iterable[Path], how: str) -> None:
    other = next((each for each in others if each.name == file.name), None)
    if other is None or sha256(other) != sha256(file):
        raise BuildFault(f"{file.name} has other bytes when it is {how}: compare the two with `diffoscope`")
