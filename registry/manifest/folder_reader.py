"""Reads a manifest: one file, or a folder with a file for each tool and each actor."""

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
    """Reads a manifest; returns its data and the folder that its paths begin in. `name` is how messages call it.

    A file is the whole manifest. A folder holds `signoff.yaml`, and beside it `tools/<name>.yaml` and
    `actors/<name>.yaml` (the name is the file's), `policies.yaml` (more global rules) and `people.yaml` (followed while
    Signoff runs). What stands in two of them is a `ConfigError` that names both places.
    """
    if not path.is_dir():
        return read_yaml(path, name), path.parent.resolve()
    main = read_yaml(path / MAIN, f"{name}/{MAIN}")
    # What has the wrong shape is passed on as it is, here and below: the reader of sections tells it, with its line.
    if not isinstance(main.data, Mapping):
        return main, path.resolve()
    file = dataclasses.replace(main, data=dict(main.data), parts={})
    for section in _NAMED:
        file = _add_entries(file, path / section, section, f"{name}/{section}")
    file = _with_policies(file, path / POLICIES, f"{name}/{POLICIES}")
    return _with_people(file, path / PEOPLE, f"{name}/{PEOPLE}"), path.resolve()


def _add_entries(file: YamlFile, folder: Path, section: str, name: str) -> YamlFile:
    """Adds to `file` one entry of `section` for each file of `folder`."""
    known = file.data.get(section, {})
    if not isinstance(known, Mapping):
        return file
    entries, parts = dict(known), dict(file.parts)
    for path in _yaml_files(file, folder, name):
        part = read_yaml(path, f"{name}/{path.name}")
        place: Place = (section, path.stem)
        # No order of files could say which of two policies holds, so neither does.
        if path.stem in entries:
            there, line = file.where(place)
            raise part.error((), f"`{path.stem}` of `{section}` stands here and on {there}:{line}; keep one")
        entries[path.stem], parts[place] = part.data, (part, ())
    return dataclasses.replace(file, data={**file.data, section: entries}, parts=parts) if entries else file


def _yaml_files(file: YamlFile, folder: Path, name: str) -> list[Path]:
    """Returns the YAML files of a folder, sorted by name. One that would not be read is an error: it may hold a
    policy.
    """
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".yaml", ".yml"))
    for path in found:
        if path.suffix != ".yaml" or path.parent != folder:
            where = f"{name}/{path.relative_to(folder)}"
            raise file.error((), f"`{where}` would not be read; write `{name}/<name>.yaml`", value=where)
    return found


def _with_policies(file: YamlFile, path: Path, name: str) -> YamlFile:
    """Adds to `file` the rules of another file, after its own."""
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
            raise part.error((index,), f"the rule `{_name(rule)}` stands here and on {there}:{line}; keep one")
        # Its place in the whole is behind the others; errors tell of the one in its own file.
        parts["policies", len(own) + index] = (part, (index,))
    return dataclasses.replace(file, data={**file.data, "policies": [*own, *part.data]}, parts=parts)


def _with_people(file: YamlFile, path: Path, name: str) -> YamlFile:
    """Names the people's own file in `file`, unless it names that very file itself."""
    part = _optional(file, path, name)
    if part is None or file.data.get("people") == PEOPLE:
        return file
    if "people" in file.data:
        there, line = file.where(("people",))
        raise part.error((), f"people stand here and on {there}:{line}; keep one")
    return dataclasses.replace(
        file, data={**file.data, "people": PEOPLE}, parts={**file.parts, ("people",): (part, ())}
    )


def _optional(file: YamlFile, path: Path, name: str) -> YamlFile | None:
    for other in (path.with_suffix(".yml"), path.with_suffix(".YAML"), path.with_suffix(".YML")):
        # By the folder's own list: where file names have no case, `exists` says yes of `.YAML` for the right one.
        if other.name in _names(path.parent):
            raise file.error((), f"`{other.name}` would not be read; call it `{path.name}`", value=other.name)
    return read_yaml(path, name) if path.is_file() else None


def _names(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir())


def _name(rule: Any) -> Any:
    name = (rule.get("name") or rule.get("rule")) if isinstance(rule, Mapping) else None
    return name if isinstance(name, str) else None
