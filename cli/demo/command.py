"""`demo`: every scene of a story in its order, one line each, and exit code 0 only if all of it was seen."""

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import typer
from rich.text import Text

import signoff
from signoff.cli.demo import edit, grant, scenes, two_people
from signoff.cli.demo.scenes import Scene
from signoff.cli.demo.stage import Stage, open_stage
from signoff.cli.terminal.options import AsJson
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.stop_signals import stop_signals
from signoff.contracts.errors import ConfigError, Refused
from signoff.registry.extras import missing_extra

app = typer.Typer(rich_markup_mode=None)

T = TypeVar("T")


class Story(StrEnum):
    """What is played."""

    MAIN = "main"
    TWO_PEOPLE = "two-people"
    EDIT = "edit"
    GRANT = "grant"
    CHANNELS = "channels"


Play: TypeAlias = Callable[[Stage], AsyncIterator[Scene]]
_PLAYS: Final[dict[Story, Play]] = {
    Story.MAIN: scenes.play,
    Story.TWO_PEOPLE: two_people.play,
    Story.EDIT: edit.play,
    Story.GRANT: grant.play,
}


@app.command()
def demo(
    story: Annotated[
        Story,
        typer.Argument(
            help="`main`: kills and resets. `two-people`: a quorum, a reminder, an escalation. `edit`: changed "
            "arguments. `grant`: a remembered answer. `channels`: Slack, e-mail and WhatsApp."
        ),
    ] = Story.MAIN,
    stay: Annotated[bool, typer.Option("--stay", help="Keep the server for a look around, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Play a story unattended, on a server of its own; exit code 0 only if everything was really seen."""
    run(lambda out: _demo(out, story, stay), as_json=as_json)


async def _demo(out: Output, story: Story, stay: bool) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="signoff-demo-") as folder, stop_signals() as stop:
        async with _set_up(story, Path(folder)) as (stage, play):
            out.say(f"a server, a worker and a gateway of its own in {folder}", "")
            seen = await _unless(stop.wait(), _told(out, play(stage)))
            out.say("", f"all of it was seen, in {time.monotonic() - began:.0f} s", "", "in Temporal UI:")
            data = [{"seen": each.words, "turn": each.turn.workflow_id, "link": stage.link(each.turn)} for each in seen]
            out.show(data, *dict.fromkeys(f"  {each['link']}" for each in data))
            if stay:
                out.say("", "the server stays until Ctrl-C")
                await stop.wait()
            else:
                out.say(f"(the server ends here; `signoff demo {story} --stay` keeps it for a look around)")
    return 0


@asynccontextmanager
async def _set_up(story: Story, folder: Path) -> AsyncIterator[tuple[Stage, Play]]:
    if story is not Story.CHANNELS:
        async with open_stage(folder, story_manifest(story, folder)) as stage:
            yield stage, _PLAYS[story]
        return
    example = story_manifest(story, folder).parent
    if lacks := missing_extra("mail"):
        raise ConfigError(f"the demo of channels {lacks}")
    # Its fakes stand on libraries of an extra.
    from signoff.cli.demo import channels  # noqa: PLC0415

    async with (
        channels.vendors(example, folder) as vendors,
        open_stage(folder, vendors.manifest, vendors.env) as stage,
    ):
        yield stage, vendors.play


async def _told(out: Output, story: AsyncIterator[Scene]) -> Sequence[Scene]:
    seen = []
    async for scene in story:
        out.say(Text("✓ ", "green") + Text(scene.words))
        seen.append(scene)
    return seen


async def _unless(stopped: Coroutine[Any, Any, Any], body: Coroutine[Any, Any, T]) -> T:
    """The result of `body`. Raises `Refused` when it is stopped before."""
    asked, playing = asyncio.create_task(stopped), asyncio.create_task(body)
    try:
        await asyncio.wait((asked, playing), return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            return playing.result()
        raise Refused("the demo was stopped before its end")
    finally:
        asked.cancel()
        playing.cancel()
        await asyncio.gather(asked, playing, return_exceptions=True)


def story_manifest(story: Story, folder: Path) -> Path:
    """The manifest that a story plays on: an example of the repository. Raises `ConfigError` where there is none.

    Two people wait for hours there: they play on a copy in `folder`, whose hours are seconds.
    """
    name = "travel_desk" if story is Story.MAIN else "payments"
    example = Path(signoff.__file__).resolve().parents[2] / "examples" / name
    if not example.is_dir():
        raise ConfigError(f"the demo plays on Signoff's examples: run it in a clone of its repository ({name} is gone)")
    if story is not Story.TWO_PEOPLE:
        return example / "signoff.yaml"
    # In the file, not by a clock of ours: what is played is then what the manifest's rules bring about.
    copy = shutil.copytree(example, folder / name) / "signoff.yaml"
    copy.write_text(_HOURS.sub(r"\1s", copy.read_text(encoding="utf-8")), encoding="utf-8")
    return copy


_HOURS: Final = re.compile(r"\b(\d+)h$", re.MULTILINE)
