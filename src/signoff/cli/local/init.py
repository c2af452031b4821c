"""`init`: the files of a first project: a manifest, a tool, a script in the place of a model, and a test."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from signoff.cli.local.project_files import EXAMPLE_SIGNATURE, FILES, FIRST_WORDS, make_files, read_signature
from signoff.cli.terminal.options import AsJson
from signoff.cli.terminal.output import Output, run
from signoff.contracts.errors import ConfigError

app = typer.Typer(rich_markup_mode=None)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to; this folder if not given.")] = Path(),
    tool: Annotated[
        str, typer.Option(metavar="SIGNATURE", help=f"A tool of your own, such as '{EXAMPLE_SIGNATURE}'.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write a first project: a manifest, a tool that asks people, a script in the place of a model, and a test."""

    async def body(out: Output) -> int:
        own = read_signature(tool) if tool else None
        written = write_project(folder, make_files(own) if own else FILES)
        inside = "" if folder == Path() else f"cd {folder}; "
        lines = [f"  {path}" for path in written]
        todo = [
            f"{inside}signoff dev",
            f'signoff ask "{own.example if own else FIRST_WORDS}"    (in a second terminal)',
        ]
        out.show(
            {"files": [str(path) for path in written]}, "written:", *lines, "next:", *(f"  {each}" for each in todo)
        )
        return 0

    run(body, as_json=as_json)


def write_project(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Writes the files of a first project, by their names; returns them.

    Raises `ConfigError` where one is there, and writes none.
    """
    paths = {folder / name: text for name, text in files.items()}
    there = [path for path in paths if path.exists()]
    if there:
        raise ConfigError(f"`{there[0]}` is there already: name another folder, such as `signoff init shop`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            # Not over one that came meanwhile.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"`{folder}` cannot be written: {error.strerror}") from None
    return list(paths)
