"""Loads handlers by import reference, `module:attribute`."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from signoff.contracts.errors import ConfigError
from signoff.formats.nearest_name import did_you_mean


def module_of(name: str) -> str:
    """Return the importable name of a module: the file's name if it runs as `__main__`."""
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return Path(getattr(main, "__file__", None) or name).stem if spec is None else str(spec.name)


def reference_of(function: Any) -> str:
    """Return `module:name`, the same whether the module runs or is imported."""
    return f"{module_of(getattr(function, '__module__', ''))}:{getattr(function, '__name__', type(function).__name__)}"


def extend_path(folders: Iterable[Path]) -> None:
    """Make the directories importable after all installed packages, so that they cannot shadow these."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"there is no folder `{folder}` to import handlers from", field="path", value=str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def load_reference(reference: object) -> Any:
    """Import the object of a reference.

    An object that a program passes is returned unchanged. Raises `ConfigError` of one sentence for any failure of the
    import.
    """
    if not isinstance(reference, str):
        return reference
    module_name, colon, attribute = reference.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError(f"`{reference}` is not `module:attribute`", field="handler", value=reference)
    try:
        found: Any = importlib.import_module(module_name)
    except ConfigError as error:
        raise ConfigError(f"importing `{module_name}`: {error.message}", field="handler", value=reference) from error
    # An import runs foreign code, which may raise anything or exit.
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(f"cannot import `{module_name}`: {why}", field="handler", value=reference) from error
    # Not `getattr`: a module's own `__getattr__` could answer to any name.
    names = vars(found)
    if attribute not in names:
        near = did_you_mean(attribute, (name for name in names if not name.startswith("_")))
        raise ConfigError(f"module `{module_name}` has no `{attribute}`{near}", field="handler", value=reference)
    return names[attribute]
