"""Prints the errors of failed examples as JSON. Reads `[{"name", "language", "folder", "file", "text"}]` from standard
input.
"""

import json
import os
import sys
from pathlib import Path

from signoff.formats.yaml_file import read_yaml
from signoff.people.people_file import load_people
from signoff.policy.cases import run_cases
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.mcp.import_file import read_import


def load(example: dict[str, str]) -> str:
    path = Path(example["folder"]) / example["file"]
    try:
        if example["language"] == "python":
            exec(compile(example["text"], example["name"], "exec"), {"__name__": "example"})
        elif path.name == "signoff.yaml":
            load_manifest(path)
        elif path.parent.name == "mcp":
            read_import(path, "shown")
        elif path.name == "people.yaml":
            load_people(path)
        else:
            catalog = load_manifest(path.parent / "signoff.yaml")
            run_cases(read_yaml(path, example["file"]).data, catalog.policies, catalog.zone)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Load each example in a separate process, so that none finds the modules of another."""
    errors: dict[str, str] = {}
    for example in json.load(sys.stdin):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.chdir(example["folder"])
            sys.path[:0] = [example["folder"], *filter(None, [example.get("path")])]
            os.write(writer, load(example).encode()[:4_000])
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            if error := pipe.read():
                errors[example["name"]] = error
        os.waitpid(child, 0)
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
