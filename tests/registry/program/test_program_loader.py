import sys
from pathlib import Path

import pytest
from tests.tables import table

from signoff import ConfigError
from signoff.registry.program.program_loader import check_manifest_path, is_program, load_program

APP = "import signoff\napp = signoff.App()\nother = 3\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_program_is_imported_from_the_working_directory(folder: Path) -> None:
    (folder / "shop_a.py").write_text(APP)
    assert load_program("shop_a:app") is load_program("shop_a:app")


def test_local_module_wins_over_an_installed_one_of_the_same_name(folder: Path) -> None:
    (folder / "wcwidth.py").write_text(APP)
    sys.modules.pop("wcwidth", None)
    load_program("wcwidth:app")
    assert sys.modules["wcwidth"].__file__ == str(folder / "wcwidth.py")


@pytest.mark.parametrize(
    ("text", "reference", "words"),
    [
        (APP, "shop_b:appp", "has no `appp`; did you mean `shop_b:app`?"),
        (APP, "shop_b:other", "is a `int`, not a `signoff.App`; did you mean `shop_b:app`?"),
        (APP, "shop_b.py:app", "`shop_b.py` is a file, not a module: write `shop_b:app`"),
        ("x = 1\n", "shop_b:app", "has no `app`; write `app = signoff.App()` there"),
        (APP, "shop_c:app", "there is no module `shop_c` in"),
        (APP, "shop_b", "`shop_b` names no app: write `MODULE:APP`"),
        ("import nowhere_at_all\n", "shop_b:app", "shop_b.py:1: importing `shop_b` failed: ModuleNotFoundError"),
        ("x = 1\n\n1 / 0\n", "shop_b:app", "shop_b.py:3: importing `shop_b` failed: ZeroDivisionError"),
        ("raise SystemExit\n", "shop_b:app", "importing `shop_b` failed: SystemExit"),
        (f"{APP}\napp.run()\n", "shop_b:app", 'if __name__ == "__main__":'),
    ],
)
def test_invalid_program_reference_is_explained(folder: Path, text: str, reference: str, words: str) -> None:
    (folder / "shop_b.py").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_program(reference)
    assert words in refused.value.message


@table("path", "shop_b.py", "shop_b")
def test_python_file_given_as_a_manifest_names_its_app(folder: Path, path: str) -> None:
    (folder / "shop_b.py").write_text(APP)
    with pytest.raises(ConfigError, match=r"for the app in `shop_b\.py` write `shop_b:app`"):
        check_manifest_path(Path(path))


def test_manifest_next_to_a_module_of_the_same_name_is_used(folder: Path) -> None:
    (folder / "shop_b.py").write_text(APP)
    (folder / "shop_b").mkdir()
    assert check_manifest_path(Path("shop_b")) is None


@table(
    ("text", "expected"),
    ("refunds:app", True),
    ("shop.refunds:app", True),
    ("signoff.yaml", False),
    ("C:app.yaml", False),
    ("./refunds:app", False),
)
def test_program_reference_is_distinguished_from_a_path(text: str, expected: bool) -> None:
    assert is_program(text) is expected
