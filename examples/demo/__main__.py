"""`python -m demo`: plays every scene of a story, one line each. Exit code 0 only if every check passes."""

import argparse
import asyncio
import json
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from demo import edit, grant, scenes, two_people
from demo.scenes import Scene
from demo.stage import Stage, open_stage
from signoff.contracts.errors import ConfigError, Refused, SignoffError
from signoff.registry.extras import missing_extra

T = TypeVar("T")
_EXAMPLES: Final = Path(__file__).resolve().parent.parent
_HOURS: Final = re.compile(r"\b(\d+)h$", re.MULTILINE)


class Story(StrEnum):
    """The stories."""

    MAIN = "main"
    TWO_PEOPLE = "two-people"
    EDIT = "edit"
    GRANT = "grant"
    CHANNELS = "channels"
    EXTERNAL = "external"
    DECIDING = "deciding"


Play: TypeAlias = Callable[[Stage], AsyncIterator[Scene]]
_PLAYS: Final[dict[Story, Play]] = {
    Story.MAIN: scenes.play,
    Story.TWO_PEOPLE: two_people.play,
    Story.EDIT: edit.play,
    Story.GRANT: grant.play,
}
_EXTRAS: Final[dict[Story, Sequence[str]]] = {
    Story.CHANNELS: ("mail",),
    Story.EXTERNAL: ("mail", "mcp"),
    Story.DECIDING: ("mail", "teams", "push"),
}


def main() -> int:
    """Play the story that the command line names, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("story", nargs="?", type=Story, choices=list(Story), default=Story.MAIN)
    parser.add_argument("--stay", action="store_true", help="keep the server for a look around, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print JSON for programs, and nothing else")
    given = parser.parse_args()
    try:
        asyncio.run(_play(given.story, stay=given.stay, as_json=given.json))
    except SignoffError as error:
        print(f"demo: {error.message}", file=sys.stderr)
        return 1
    return 0


async def _play(story: Story, *, stay: bool, as_json: bool) -> None:
    say: Callable[[str], object] = (lambda words: None) if as_json else print
    began, stop = time.monotonic(), asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    with tempfile.TemporaryDirectory(prefix="signoff-demo-") as folder:
        async with _set_up(story, Path(folder)) as (stage, play):
            say(f"a separate server, worker and gateway in {folder}\n")
            seen = await _unless(stop.wait(), _told(say, play(stage)))
            say(f"\nall of it was seen, in {time.monotonic() - began:.0f} s")
            if as_json:
                told = [
                    {"seen": each.words, "turn": each.turn.workflow_id, "link": stage.link(each.turn)} for each in seen
                ]
                print(json.dumps(told, ensure_ascii=False, indent=2), flush=True)
            if stay:
                links = dict.fromkeys(f"  {stage.link(each.turn)}" for each in seen)
                say("\n".join(["\nin Temporal UI:", *links, "\nthe server stays until Ctrl-C"]))
                await stop.wait()
            else:
                say(f'to look around in Temporal UI: make demo STORY="{story} --stay"')


@asynccontextmanager
async def _set_up(story: Story, folder: Path) -> AsyncIterator[tuple[Stage, Play]]:
    if story in _PLAYS:
        async with open_stage(folder, story_manifest(story, folder)) as stage:
            yield stage, _PLAYS[story]
        return
    for extra in _EXTRAS[story]:
        if lacks := missing_extra(extra):
            raise ConfigError(f"the demo of {story} {lacks}")
    # Imported here: these modules need libraries of extras.
    from demo import channels  # noqa: PLC0415

    example = story_manifest(story, folder).parent
    if story is Story.CHANNELS:
        async with (
            channels.vendors(example, folder) as vendors,
            open_stage(folder, vendors.manifest, vendors.env) as stage,
        ):
            yield stage, vendors.play
        return
    if story is Story.DECIDING:
        from demo import deciding  # noqa: PLC0415

        async with (
            deciding.deciding(example, folder) as place,
            open_stage(folder, place.manifest, place.env, deciding.HOST) as stage,
        ):
            yield stage, place.play
        return
    from demo import external  # noqa: PLC0415

    async with (
        external.agents(example, folder) as agents,
        open_stage(folder, agents.vendors.manifest, agents.vendors.env) as stage,
    ):
        yield stage, agents.play


async def _told(say: Callable[[str], object], story: AsyncIterator[Scene]) -> Sequence[Scene]:
    seen = []
    async for scene in story:
        say(f"✓ {scene.words}")
        seen.append(scene)
    return seen


async def _unless(stopped: Coroutine[Any, Any, Any], body: Coroutine[Any, Any, T]) -> T:
    """Return the result of `body`. Raises `Refused` if `stopped` ends first."""
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
    """Return the manifest of a story, from the example next to this directory.

    In the story of two people, approvers wait for hours. It gets a copy in `folder` with seconds instead of hours.
    """
    example = _EXAMPLES / {Story.MAIN: "travel_desk", Story.DECIDING: "suppliers"}.get(story, "payments")
    if story is not Story.TWO_PEOPLE:
        return example / "signoff.yaml"
    # Change the file, not a clock: the story then follows the manifest's own rules.
    copy = shutil.copytree(example, folder / example.name) / "signoff.yaml"
    copy.write_text(_HOURS.sub(r"\1s", copy.read_text(encoding="utf-8")), encoding="utf-8")
    return copy


if __name__ == "__main__":
    sys.exit(main())
