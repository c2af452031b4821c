"""Loads the program that `MODULE:APP` names."""

import importlib
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from signoff.contracts.errors import ConfigError
from signoff.registry.program.program import Program

REFERENCE: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
"""The form of `MODULE:APP`."""
_importing: list[str] = []


def is_program(reference: str) -> bool:
    """Return whether a text has the form `MODULE:APP` and is not an existing file."""
    return REFERENCE.match(reference) is not None and not Path(reference).exists()


def check_manifest_path(path: Path) -> None:
    """Raise `ConfigError` if the manifest's path is a Python file, or the name of one without its suffix."""
    file = path if path.suffix == ".py" else path.with_name(f"{path.name}.py")
    if file.is_file() and (path.suffix == ".py" or not path.exists()):
        why = f"`{path}` is no manifest: for the app in `{file}` write `{file.stem}:app`"
        raise ConfigError(why, field="manifest", value=str(path))


def imported_program() -> str:
    """Return the reference of the running import, or ""."""
    return _importing[-1] if _importing else ""


def load_program(reference: str, folder: Path | None = None) -> Program:
    """Import the program.

    `folder`, by default the working directory, is searched first. Raises `ConfigError` with the imported file.
    """
    module_name, _, attribute = reference.partition(":")
    if REFERENCE.match(reference) is None:
        raise ConfigError(f"`{reference}` names no app: write `MODULE:APP`, such as `refunds:app`", field="app")
    place = str((folder or Path.cwd()).resolve())
    # First, so that a local `attr.py` hides an installed one, as with `python refunds.py`.
    if sys.path[0] != place:
        sys.path.insert(0, place)
    module = _import(reference, module_name, place)
    found = vars(module).get(attribute)
    file = getattr(module, "__file__", None) or module_name
    if found is None:
        raise ConfigError(f"`{file}` has no `{attribute}`{_instead(module_name, module)}", field="app", value=reference)
    if not isinstance(found, Program):
        kind = type(found).__name__
        why = f"`{attribute}` in `{file}` is a `{kind}`, not a `signoff.App`{_instead(module_name, module)}"
        raise ConfigError(why, field="app", value=reference)
    return found


def _import(reference: str, name: str, folder: str) -> Any:
    with _mark(reference):
        try:
            return importlib.import_module(name)
        except ConfigError:
            raise
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise _failed(name, error) from error
            if name.endswith(".py"):
                _, _, attribute = reference.partition(":")
                why = f"`{name}` is a file, not a module: write `{name.removesuffix('.py')}:{attribute}`"
                raise ConfigError(why, field="app", value=reference) from None
            near = ", ".join(sorted(path.name for path in Path(folder).glob("*.py")))[:200]
            hint = f"; its Python files are {near}" if near else ""
            why = f"there is no module `{name}` in `{folder}`{hint}"
            raise ConfigError(why, field="app", value=reference) from None
        # An import runs foreign code, which may raise anything or exit.
        except (Exception, SystemExit) as error:
            raise _failed(name, error) from error


def _failed(name: str, error: BaseException) -> ConfigError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    why = f"{type(error).__name__}: {error}".partition("\n")[0]
    return ConfigError(f"{where}importing `{name}` failed: {why}", field="app", value=name)


def _instead(module_name: str, module: Any) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, Program)]
    return f"; did you mean `{module_name}:{apps[0]}`?" if apps else "; write `app = signoff.App()` there"


@contextmanager
def _mark(reference: str) -> Iterator[None]:
    _importing.append(reference)
    try:
        yield
    finally:
        _importing.pop()
