"""Measures the house: folders, import arrows, lines, shapes, tests. Prints a table, or JSON with `--json`.

`--neighbours` lists the modules that one neighbour alone imports, with their lines.

Run it as `python tools/measure/house.py [ROOT]`. It reads files and imports nothing of Signoff.
"""

import argparse
import ast
import itertools
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "signoff"
PLUGINS = "signoff.plugins."
PARTED = ("activities", "channels", "gateway", "registry")
SHAPES = ("quorum", "approvers")


def tracked(root: Path) -> list[Path]:
    """Leave links out."""
    run = ["git", "-C", str(root), "ls-files", "-z"]
    names = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split("\0")
    paths = (root / name for name in names if name)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def modules(root: Path) -> dict[str, Path]:
    """Follow links."""
    top = root / "src" / PACKAGE
    found = {}
    for path in walk(top):
        parts = path.relative_to(top).with_suffix("").parts
        name = ".".join((PACKAGE, *(part for part in parts if part != "__init__")))
        found[name] = path
    return found


def walk(folder: Path) -> Iterator[Path]:
    """`Path.rglob` does not follow links."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            yield from walk(path)
        elif path.suffix == ".py":
            yield path


def imports_of(path: Path, known: dict[str, Path]) -> set[str]:
    """Include imports under `TYPE_CHECKING`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
    return {name for name in found if name in known}


def arrows(root: Path) -> dict[str, set[str]]:
    known = modules(root)
    return {name: imports_of(path, known) - {name} for name, path in known.items()}


def part(name: str, depth: int) -> str:
    """`depth` counts below the package."""
    return ".".join(name.split(".")[: depth + 1])


def between(found: dict[str, set[str]], depth: int, within: str = PACKAGE) -> Counter[tuple[str, str]]:
    pairs: Counter[tuple[str, str]] = Counter()
    for name, targets in found.items():
        for target in targets:
            one, other = part(name, depth), part(target, depth)
            inside = one.startswith(within + ".") and other.startswith(within + ".")
            if inside and one != other:
                pairs[one, other] += 1
    return pairs


def against(pairs: Counter[tuple[str, str]]) -> int:
    """Return how many arrows must be cut until no circle is left, by a greedy order."""
    left, order_last, order_first = dict(pairs), [], []
    nodes = {node for pair in pairs for node in pair}
    while nodes:
        out = {node: sum(1 for one, other in left if one == node) for node in nodes}
        into = {node: sum(1 for one, other in left if other == node) for node in nodes}
        sink = next((node for node in sorted(nodes) if out[node] == 0), None)
        source = next((node for node in sorted(nodes) if into[node] == 0), None)
        node = sink or source or max(sorted(nodes), key=lambda each: out[each] - into[each])
        (order_last if node == sink else order_first).append(node)
        nodes.discard(node)
        left = {pair: count for pair, count in left.items() if node not in pair}
    place = {node: index for index, node in enumerate([*order_first, *reversed(order_last)])}
    return sum(1 for one, other in pairs if place[one] > place[other])


def one_neighbour(root: Path, found: dict[str, set[str]]) -> dict[str, str]:
    """Map modules that one module of the same folder alone imports to that module.

    A module that is loaded by its name is left out: a command, a process or a driver, which others must not load.
    """
    importers = defaultdict(set)
    for name, targets in found.items():
        for target in targets:
            importers[target].add(name)
    alone = {name: next(iter(by)) for name, by in sorted(importers.items()) if len(by) == 1}
    apart = loaded_by_name(root)
    return {name: by for name, by in alone.items() if part_of(name) == part_of(by) and name not in apart}


def part_of(name: str) -> str:
    return name.rpartition(".")[0]


def loaded_by_name(root: Path) -> set[str]:
    known = modules(root)
    nodes = (node for path in known.values() for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts & known.keys()


def declaring(root: Path, field: str) -> int:
    count = 0
    for path in modules(root).values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
                count += any(isinstance(target, ast.Name) and target.id == field for target in names)
    return count


def lines(paths: Iterator[Path] | list[Path]) -> int:
    return sum(path.read_text(encoding="utf-8", errors="replace").count("\n") for path in paths)


def build_lines(root: Path) -> int:
    """Count lines on the build, and on names that no module may import."""
    tables = ("[tool.hatch", "[tool.ruff.lint.flake8-tidy-imports.banned-api]")
    counted = inside = 0
    for line in (root / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            inside = line.startswith(tables)
        counted += bool(inside and line.strip())
    return counted


def measure(root: Path) -> dict[str, object]:
    files = tracked(root)
    found = arrows(root)
    python = {path.relative_to(root): path for path in files if path.suffix == ".py"}
    own = modules(root)
    plugins = [path for name, path in own.items() if name.startswith(PLUGINS)]
    tops = {path.relative_to(root).parts[0] for path in files if len(path.relative_to(root).parts) > 1}
    links = [path for path in (root / "src" / PACKAGE).iterdir() if path.is_symlink()]
    circles = {f"circles in {name}": against(between(found, 2, f"{PACKAGE}.{name}")) for name in PARTED}
    shapes = {f"classes that declare `{name}`": declaring(root, name) for name in SHAPES}
    maps = [path for path in files if path.name == "architecture.md"]
    return {
        "folders at the top": len(tops),
        "links in src/signoff": len(links),
        "arrows between folders": len(between(found, 1)),
        "circles between folders": against(between(found, 1)),
        **circles,
        "build lines of pyproject.toml": build_lines(root),
        **shapes,
        "core lines": lines(itertools.chain(path for name, path in own.items() if not name.startswith(PLUGINS))),
        "plugin lines": lines(plugins),
        "modules": len(own),
        "modules imported by one neighbour alone": len(one_neighbour(root, found)),
        "lines of architecture.md": lines(maps),
        "folder READMEs": sum(1 for path in files if path.name == "README.md" and path.parent != root),
        "test lines": lines(path for name, path in python.items() if name.parts[0] == "tests"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--neighbours", action="store_true")
    asked = parser.parse_args()
    root = asked.root.resolve()
    if asked.neighbours:
        known = modules(root)
        for name, by in one_neighbour(root, arrows(root)).items():
            print(f"{name} ({lines([known[name]])}), imported by {by.rpartition('.')[2]} ({lines([known[by]])})")
        return
    found = measure(root)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
