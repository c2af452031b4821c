import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from datetime import date
from pathlib import Path

import pytest
from tables import table

from signoff.contracts.names import VERSION
from tools.release.artifacts import BuildFault, build, links_in, without_links, write_checksums
from tools.release.components import AdvisoryFault, judge_audit
from tools.release.environments import PYTHONS, find_pythons
from tools.release.readiness import (
    changelog_problem,
    client_problem,
    commit_problem,
    commit_time,
    recording_problem,
    version_problem,
)

ROOT = Path(__file__).resolve().parent.parent
DAY = date(2026, 11, 24)
WHOLE = "# Changelog\n\n## 1.2.0 (2026-11-24)\n\n- One more thing.\n\n## 1.1.0 (2026-10-01)\n\n- A thing.\n"


@table(
    ("text", "expected"),
    (WHOLE, ""),
    (WHOLE.replace("# Changelog\n", "# Changelog\n\n## Unreleased\n"), ""),
    (WHOLE.replace("# Changelog\n", "# Changelog\n\n## Unreleased\n\n- Next.\n"), "lines under Unreleased"),
    (WHOLE.replace("2026-11-24", "unreleased"), "still calls 1.2.0 unreleased"),
    (WHOLE.replace(" (2026-11-24)", ""), "still calls 1.2.0 unreleased"),
    (WHOLE.replace("2026-11-24", "soon"), "`soon`, which is no day"),
    (WHOLE.replace("2026-11-24", "2026-11-25"), "yet to come"),
    (WHOLE.replace("- One more thing.\n", ""), "says nothing of 1.2.0"),
    (WHOLE.replace("1.2.0", "1.3.0"), "begins with 1.3.0 and not with 1.2.0"),
    ("# Changelog\n", "begins with nothing and not with 1.2.0"),
)
def test_changelog_names_version_date_and_changes(text: str, expected: str) -> None:
    found = changelog_problem(text, "1.2.0", DAY)
    assert expected in found
    assert bool(found) == bool(expected)
    assert found == "" or ("\n" not in found and ": " in found)


def test_version_is_the_same_number_in_both_places() -> None:
    assert version_problem("1.2.0", "1.2.0") == version_problem("1.2.0rc1", "1.2.0rc1") == ""
    assert "write one number into both" in version_problem("1.2.0", "1.1.0")
    assert "MAJOR.MINOR.PATCH" in version_problem("1.2", "1.2")


def test_client_has_the_version_of_signoff() -> None:
    assert client_problem(ROOT, VERSION) == ""
    assert "write one number into both" in client_problem(ROOT, "9.9.9")


def test_version_is_released_with_its_recording(tmp_path: Path) -> None:
    assert "record.py" in recording_problem(tmp_path, "1.2.0")
    (tmp_path / "tests/installations/1.2.0").mkdir(parents=True)
    (tmp_path / "tests/installations/1.2.0/turns.json").write_text("{}")
    assert recording_problem(tmp_path, "1.2.0") == ""


def test_only_an_untagged_commit_is_released(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        names = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
        subprocess.run(("git", *names, *arguments), cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "a").write_text("1")
    assert "not committed" in commit_problem(tmp_path, "1.2.0")
    git("add", "a")
    git("commit", "-m", "a")
    assert commit_problem(tmp_path, "1.2.0") == ""
    git("tag", "v1.2.0")
    assert "tag v1.2.0 already" in commit_problem(tmp_path, "1.2.0")


@pytest.mark.long
@pytest.mark.parametrize("folder", [".", "clients/python"])
def test_release_builds_are_reproducible(tmp_path: Path, folder: str) -> None:
    first = build(ROOT, tmp_path / "one", tmp_path / "first", commit_time(ROOT), folder)
    second = build(ROOT, tmp_path / "two", tmp_path / "second", commit_time(ROOT), folder)
    assert [file.suffix for file in sorted(first)] == [".whl", ".gz"]
    assert [file.read_bytes() for file in sorted(first)] == [file.read_bytes() for file in sorted(second)]


@pytest.mark.long
def test_build_with_links_is_refused(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(("git", "clone", "--quiet", str(ROOT), str(clone)), check=True)
    project = (clone / "pyproject.toml").read_text()
    (clone / "pyproject.toml").write_text(re.sub(r"^exclude = .*\n", "", project, count=1, flags=re.MULTILINE))
    names = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(("git", *names, "commit", "--quiet", "-am", "links"), cwd=clone, check=True)
    with pytest.raises(BuildFault):
        build(clone, tmp_path / "scratch", tmp_path / "out", commit_time(clone))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_extra_can_be_installed_in_the_pinned_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = f"{ROOT}[{','.join(project['optional-dependencies'])}]"
    # The build tools are already installed: an isolated environment would download them.
    how = ("--dry-run", "--no-build-isolation", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"))
    done = subprocess.run((sys.executable, "-m", "pip", "install", *how, wanted), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "bedrock" in project["optional-dependencies"]


def test_links_in_a_build_are_found(tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "a.whl", tmp_path / "a.tar.gz"
    with zipfile.ZipFile(wheel, "w") as file:
        linked = zipfile.ZipInfo("linked")
        linked.external_attr = 0o120777 << 16
        file.writestr(linked, "plain")
        file.writestr("plain", "")
    with tarfile.open(sdist, "w:gz") as archive:
        member = tarfile.TarInfo("linked")
        member.type, member.linkname = tarfile.SYMTYPE, "plain"
        archive.addfile(member)
        archive.addfile(tarfile.TarInfo("plain"), io.BytesIO())
    assert (links_in(wheel), links_in(sdist)) == (["linked"], ["linked"])


def test_links_are_refused_during_a_build(tmp_path: Path) -> None:
    variables = os.environ | without_links(tmp_path / "refusing")
    for call in ("os.symlink('a', 'b')", "os.link('a', 'b')", "pathlib.Path('b').symlink_to('a')"):
        code = f"import os, pathlib; open('a', 'w').close(); {call}"
        done = subprocess.run((sys.executable, "-c", code), cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert (done.returncode, "no links can be made here" in done.stderr) == (1, True)


def test_checksums_are_in_sha256sum_format(tmp_path: Path) -> None:
    for name in ("b.whl", "a.tar.gz"):
        (tmp_path / name).write_text(name)
    written = write_checksums(tmp_path, [tmp_path / "b.whl", tmp_path / "a.tar.gz"])
    assert written.read_text().splitlines() == [
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in ("a.tar.gz", "b.whl")
    ]


def test_incomplete_audit_does_not_count() -> None:
    seen = {"name": "jinja2", "version": "3.1.6", "vulns": []}
    unseen = {"name": "pydantic", "version": "2", "skip_reason": "not found"}
    ours = {"name": "signoff", "version": "1", "skip_reason": "not found"}
    assert judge_audit({"dependencies": [seen, ours]}) == ""
    assert "for 1 of 2 components (pydantic)" in judge_audit({"dependencies": [seen, unseen, ours]})
    assert "nothing at all" in judge_audit({"dependencies": [ours]})
    with pytest.raises(AdvisoryFault, match=r"jinja2 3\.1\.6"):
        judge_audit({"dependencies": [seen | {"vulns": [{"id": "X-1"}]}, unseen]})


def test_current_python_is_found() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert here in find_pythons()
    assert f'requires-python = ">={PYTHONS[0]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
