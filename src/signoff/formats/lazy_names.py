"""Names of a package that are imported when they are first asked for (PEP 562)."""

import sys
from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Returns the `__getattr__` of `package`, whose names lie in other modules: name -> module.

    It raises `AttributeError` for every other name.
    """

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # An import statement's own way, and not `importlib.import_module`: in Temporal's sandbox that passes by what is
        # shared and loads a second copy of the module, whose classes are others for the rest of the process.
        found: object = getattr(__import__(modules[name], fromlist=[name]), name)
        # Not asked for again.
        setattr(sys.modules[package], name, found)
        return found

    return load
