"""Files of declared folders: read, listed and written there, and nowhere else, whatever links somebody lays."""

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
    """A folder that may be read, one that may be written, and a secret beside them."""
    for name in ("reports/q3", "out", "secrets"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "reports" / "q3" / "a.txt").write_text("a")
    (tmp_path / "secrets" / "key").write_text("secret")
    return tmp_path


def reach(root: Path) -> FileReach:
    declared = Capabilities(fs_reach=(f"{root}/reports", f"{root}/out:write"))
    return Folders().resolve(declared, "main")  # type: ignore[return-value]


@pytest.mark.row("E47")
async def test_declared_folders_are_reached_in_a_call_and_others_are_not(store: Store, root: Path) -> None:
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


async def test_files_are_read_listed_and_replaced(root: Path) -> None:
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
async def test_nothing_else_is_read(root: Path, path: str) -> None:
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
async def test_no_path_is_taken_that_is_not_absolute_or_leads_elsewhere(root: Path, path: str) -> None:
    """A relative one would hang on where the worker was started."""
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await reach(root).read(path)
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await reach(root).list(path)


def names(root: Path) -> list[str]:
    return sorted(str(each) for each in root.rglob("*"))


@pytest.mark.parametrize("path", ["reports/b", "out", "secrets/key", "out/up", "out/../secrets/key", "out/folder"])
async def test_nothing_is_written_elsewhere(root: Path, path: str) -> None:
    (root / "out" / "up").symlink_to(root / "secrets" / "key")
    (root / "out" / "folder").mkdir()
    before = names(root)
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await reach(root).write(f"{root}/{path}", b"x")
    assert names(root) == before
    assert (root / "secrets" / "key").read_text() == "secret"


async def test_a_folder_that_becomes_a_link_later_leads_nowhere(root: Path) -> None:
    backend, declared = Folders(), Capabilities(fs_reach=(f"{root}/reports",))
    assert backend.problem(declared) == ""
    (root / "reports").rename(root / "before")
    (root / "reports").symlink_to(root / "secrets")
    given: Any = backend.resolve(declared, "main")
    with pytest.raises(CapabilityError, match="PATH_NOT_REACHABLE"):
        await given.read(f"{root}/reports/key")


@pytest.mark.parametrize("what", ["folder", "file"])
async def test_a_link_that_is_swapped_in_after_the_look_is_not_followed(
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


async def test_a_link_that_becomes_a_folder_while_it_is_followed_is_refused(
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


async def test_no_race_of_links_brings_anything_from_outside(root: Path) -> None:
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


async def test_a_file_may_be_so_large_and_no_larger(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "FILE_BYTES", 3)
    (root / "reports" / "b").write_bytes(b"xxx")
    assert await reach(root).read(f"{root}/reports/b") == b"xxx"
    (root / "reports" / "b").write_bytes(b"xxxx")
    with pytest.raises(CapabilityError, match=r"^REPLY_TOO_LARGE: b has more than 3 bytes$"):
        await reach(root).read(f"{root}/reports/b")


@pytest.mark.row("E47")
async def test_a_declared_folder_that_is_missing_is_an_error_at_start_naming_it(store: Store, root: Path) -> None:
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
def test_a_wrong_declaration_is_refused(folder: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ToolRegistry([pay_tool(Ledger(), False, capabilities=Capabilities(fs_reach=(folder,)))])
