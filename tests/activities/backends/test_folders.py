import os
import threading
from pathlib import Path
from typing import Any

import pytest
from activity_kit import run, summary, task_for
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.backends import folders
from signoff.activities.backends.folders import Folders
from signoff.contracts.errors import ConfigError
from signoff.registry.actor import Actor
from signoff.registry.capabilities import Capabilities, CapabilityError, FileReach
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel
from signoff.worker import build_deps

MODEL = ScriptedModel([])


def known(tool: Tool) -> Catalog:
    return build_catalog(tools=[tool], actors=[Actor(name="desk", model=f"scripted:{__name__}:MODEL")])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("reports/q3", "out", "secrets"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "reports" / "q3" / "a.txt").write_text("a")
    (tmp_path / "secrets" / "key").write_text("secret")
    return tmp_path


def reach(root: Path) -> FileReach:
    declared = Capabilities(fs_reach=(f"{root}/reports", f"{root}/out:write"))
    return Folders().resolve(declared, "main")  # type: ignore[return-value]


@pytest.mark.row("E47")
async def test_declared_directories_are_reachable_and_others_are_not(store: Store, root: Path) -> None:
    async def handler(args: dict[str, Any], context: ToolContext) -> str:
        files = context.capabilities.fs_reach
        await files.write(f"{root}/out/copy.txt", await files.read(f"{root}/reports/q3/a.txt"))
        return (await files.read(f"{root}/secrets/key")).decode()

    capabilities = Capabilities(fs_reach=(f"{root}/reports", f"{root}/out:write"))
    declared = pay_tool(Ledger(), False, handler=handler, capabilities=capabilities)
    made = await build_deps(known(declared), store)
    code, text = summary(await run(made, declared, task_for(declared)))
    assert (code, f"PATH_NOT_REACHABLE: {root}/secrets/key" in text) == ("execution_failed", True)
    assert (root / "out" / "copy.txt").read_text() == "a"


async def test_reads_lists_and_replaces_files_in_declared_directories(root: Path) -> None:
    files = reach(root)
    (root / "reports" / "last").symlink_to(root / "reports" / "q3")
    (root / "out" / "there").symlink_to(root / "reports" / "q3" / "a.txt")
    assert await files.read(f"{root}/reports/last/a.txt") == b"a"
    assert await files.read(f"{root}/out/there") == b"a"
    assert await files.list(f"{root}/reports") == ("last", "q3")
    assert await files.list(f"{root}/reports/last/../q3") == ("a.txt",)
    for content in (b"one", b"two"):
        await files.write(f"{root}/out/b", content)
        assert await files.read(f"{root}/out/b") == content
    assert await files.list(f"{root}/out") == ("b", "there")
    with pytest.raises(FileNotFoundError, match="nothing"):
        await files.read(f"{root}/reports/nothing")


@pytest.mark.parametrize(
    "path",
    ["secrets/key", "reports/../secrets/key", "reports/out/key", "reports/file", "", "reports-other/key", "reports/q3",
     "reports/pipe", "reports/loop", "reports/q3/a.txt/b"],
)  # fmt: skip
async def test_paths_outside_the_directory_cannot_be_read(root: Path, path: str) -> None:
    (root / "reports-other").mkdir()
    (root / "reports-other" / "key").write_text("secret")
    (root / "reports" / "out").symlink_to(root / "secrets")
    (root / "reports" / "file").symlink_to(root / "secrets" / "key")
    (root / "reports" / "loop").symlink_to(root / "reports" / "loop")
    os.mkfifo(root / "reports" / "pipe")
    with pytest.raises((CapabilityError, FileNotFoundError)) as refused:
        await reach(root).read(f"{root}/{path}")
    if path != "reports/loop":
        assert str(refused.value) == f"PATH_NOT_REACHABLE: {root}/{path}"


@pytest.mark.parametrize("path", ["reports/q3/a.txt", "a.txt", "/proc/self/environ", "\0", "."])
async def test_relative_and_special_paths_are_rejected(root: Path, path: str) -> None:
    """A relative path would depend on the worker's working directory."""
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await reach(root).read(path)
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await reach(root).list(path)


def names(root: Path) -> list[str]:
    return sorted(str(each) for each in root.rglob("*"))


@pytest.mark.parametrize("path", ["reports/b", "out", "secrets/key", "out/up", "out/../secrets/key", "out/folder"])
async def test_paths_outside_the_writable_directory_cannot_be_written(root: Path, path: str) -> None:
    (root / "out" / "up").symlink_to(root / "secrets" / "key")
    (root / "out" / "folder").mkdir()
    before = names(root)
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await reach(root).write(f"{root}/{path}", b"x")
    assert names(root) == before
    assert (root / "secrets" / "key").read_text() == "secret"


async def test_directory_replaced_by_symlink_after_declaration_is_unreachable(root: Path) -> None:
    backend, declared = Folders(), Capabilities(fs_reach=(f"{root}/reports",))
    assert backend.problem(declared) == ""
    (root / "reports").rename(root / "before")
    (root / "reports").symlink_to(root / "secrets")
    given: Any = backend.resolve(declared, "main")
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await given.read(f"{root}/reports/key")


@pytest.mark.parametrize("what", ["folder", "file"])
async def test_symlink_swapped_in_after_path_check_is_not_followed(
    root: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "reports" / "q3" / "key").write_text("mine")
    real, files = os.path.realpath, reach(root)

    def swapped(path: str) -> str:
        found = real(path)
        place = root / "reports" / "q3"
        place = place / "key" if what == "file" else place
        place.rename(root / "aside")
        place.symlink_to(root / "secrets" / "key" if what == "file" else root / "secrets")
        return found

    monkeypatch.setattr(folders.os.path, "realpath", swapped)
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await files.read(f"{root}/reports/q3/key")


async def test_symlink_replaced_by_directory_during_resolution_is_rejected(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = root / "reports" / "link"
    link.symlink_to(root / "reports" / "q3")
    real, files = os.readlink, reach(root)

    def swapped(path: str) -> str:
        link.unlink()
        link.mkdir()
        return real(path)

    monkeypatch.setattr(folders.os, "readlink", swapped)
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await files.read(f"{link}/key")


async def test_racing_symlinks_never_expose_outside_files(root: Path) -> None:
    place, aside, link = (root / "reports" / name for name in ("q3", "aside", "link"))
    (place / "key").write_text("mine")
    files, over = reach(root), threading.Event()

    def swap() -> None:
        while not over.is_set():
            link.symlink_to(root / "secrets")
            place.rename(aside)
            link.rename(place)
            place.unlink()
            aside.rename(place)

    attacker = threading.Thread(target=swap)
    attacker.start()
    seen = {b"mine": 0, b"refused": 0}
    try:
        for _ in range(1_000):
            try:
                seen[await files.read(f"{root}/reports/q3/key")] += 1
            except (CapabilityError, FileNotFoundError):
                seen[b"refused"] += 1
    finally:
        over.set()
        attacker.join()
    assert set(seen) == {b"mine", b"refused"}
    assert seen[b"refused"] > 0


async def test_files_above_the_size_limit_are_rejected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "FILE_BYTES", 3)
    (root / "reports" / "b").write_bytes(b"xxx")
    assert await reach(root).read(f"{root}/reports/b") == b"xxx"
    (root / "reports" / "b").write_bytes(b"xxxx")
    with pytest.raises(CapabilityError, match=r"^REPLY_TOO_LARGE: b has more than 3 bytes$"):
        await reach(root).read(f"{root}/reports/b")


@pytest.mark.row("E47")
async def test_missing_declared_directory_fails_at_start_with_its_path(store: Store, root: Path) -> None:
    capabilities = Capabilities(fs_reach=(f"{root}/none:write",))
    declared = pay_tool(Ledger(), False, capabilities=capabilities)
    with pytest.raises(ConfigError) as refused:
        await build_deps(known(declared), store)
    assert f"tool `pay` needs the folder `{root}/none:write`, which is not on this machine" in refused.value.message


@table(
    ("folder", "words"),
    ("reports", "is no absolute path"),
    ("/srv/../etc", "is no absolute path"),
    ("/", "may reach all files"),
)
def test_invalid_directory_declaration_is_rejected(folder: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ToolRegistry([pay_tool(Ledger(), False, capabilities=Capabilities(fs_reach=(folder,)))])
