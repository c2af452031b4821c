"""Reads a manifest: one file, or a directory with a file for each tool and each actor."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from signoff.formats.yaml_file import Place, YamlFile, read_yaml

MAIN: Final = "signoff.yaml"
POLICIES: Final = "policies.yaml"
PEOPLE: Final = "people.yaml"
_NAMED: Final = ("tools", "actors")


def read_manifest(path: Path, name: str) -> tuple[YamlFile, Path]:
    """Read a manifest.

    Returns its data and the base directory of its paths. `name` is its name in messages. A directory holds
    `signoff.yaml`, and optionally `tools/<name>.yaml` and `actors/<name>.yaml`, `policies.yaml` (more global rules) and
    `people.yaml` (reread while Signoff runs). A `ConfigError` with both places reports an entry in two files.
    """
    if not path.is_dir():
        return read_yaml(path, name), path.parent.resolve()
    main = read_yaml(path / MAIN, f"{name}/{MAIN}")
    # Pass wrong shapes on unchanged, here and below: the section reader reports them with their line.
    if not isinstance(main.data, Mapping):
        return main, path.resolve()
    file = dataclasses.replace(main, data=dict(main.data), parts={})
    for section in _NAMED:
        file = _add_entries(file, path / section, section, f"{name}/{section}")
    file = _with_policies(file, path / POLICIES, f"{name}/{POLICIES}")
    return _with_people(file, path / PEOPLE, f"{name}/{PEOPLE}"), path.resolve()


def _add_entries(file: YamlFile, folder: Path, section: str, name: str) -> YamlFile:
    known = file.data.get(section, {})
    if not isinstance(known, Mapping):
        return file
    entries, parts = dict(known), dict(file.parts)
    for path in _yaml_files(file, folder, name):
        part = read_yaml(path, f"{name}/{path.name}")
        place: Place = (section, path.stem)
        # The order of files cannot decide which of two policies holds, so neither wins.
        if path.stem in entries:
            there, line = file.where(place)
            raise part.error((), f"`{path.stem}` of `{section}` is declared here and in {there}:{line}; keep one")
        entries[path.stem], parts[place] = part.data, (part, ())
    return dataclasses.replace(file, data={**file.data, section: entries}, parts=parts) if entries else file


def _yaml_files(file: YamlFile, folder: Path, name: str) -> list[Path]:
    """Return the files sorted by name. A file that would not be read is an error: it may hold a policy."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".yaml", ".yml"))
    for path in found:
        if path.suffix != ".yaml" or path.parent != folder:
            where = f"{name}/{path.relative_to(folder)}"
            raise file.error((), f"`{where}` would not be read; write `{name}/<name>.yaml`", value=where)
    return found


def _with_policies(file: YamlFile, path: Path, name: str) -> YamlFile:
    """Append the rules to the file's own."""
    part = _optional(file, path, name)
    own = file.data.get("policies", [])
    if part is None or not isinstance(own, list):
        return file
    if not isinstance(part.data, list):
        raise part.error((), "policies are a list of rules, each with `rule` and `effect`")
    # The compiler of rules finds twins as well, but knows only one of the two places.
    names = {_name(rule): index for index, rule in enumerate(own)}
    parts: dict[Place, tuple[YamlFile, Place]] = dict(file.parts)
    for index, rule in enumerate(part.data):
        twin = names.get(_name(rule)) if _name(rule) is not None else None
        if twin is not None:
            there, line = file.where(("policies", twin))
            raise part.error((index,), f"the rule `{_name(rule)}` is declared here and in {there}:{line}; keep one")
        # In the whole list it follows the others. Errors show its place in its own file.
        parts["policies", len(own) + index] = (part, (index,))
    return dataclasses.replace(file, data={**file.data, "policies": [*own, *part.data]}, parts=parts)


def _with_people(file: YamlFile, path: Path, name: str) -> YamlFile:
    """Does nothing if `file` names it already."""
    part = _optional(file, path, name)
    if part is None or file.data.get("people") == PEOPLE:
        return file
    if "people" in file.data:
        there, line = file.where(("people",))
        raise part.error((), f"people are declared here and in {there}:{line}; keep one")
    return dataclasses.replace(
        file, data={**file.data, "people": PEOPLE}, parts={**file.parts, ("people",): (part, ())}
    )


def _optional(file: YamlFile, path: Path, name: str) -> YamlFile | None:
    for other in (path.with_suffix(".yml"), path.with_suffix(".YAML"), path.with_suffix(".YML")):
        # Compare with the directory's listing: on a case-insensitive file system `exists` also matches `.YAML`.
        if other.name in _names(path.parent):
            raise file.error((), f"`{other.name}` would not be read; call it `{path.name}`", value=other.name)
    return read_yaml(path, name) if path.is_file() else None


def _names(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir())


def _name(rule: Any) -> Any:
    name = (rule.get("name") or rule.get("rule")) if isinstance(rule, Mapping) else None
    return name if isinstance(name, str) else None
