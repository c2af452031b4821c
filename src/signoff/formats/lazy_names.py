"""Names of a package that are imported at first use (PEP 562)."""

import sys
from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of `package`."""

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # Import like a statement instead of `importlib.import_module`: in Temporal's sandbox that bypasses shared
        # modules and loads a second copy, with different classes for the rest of the process.
        value: object = getattr(__import__(modules[name], fromlist=[name]), name)
        # Cache the value.
        setattr(sys.modules[package], name, value)
        return value

    return load
