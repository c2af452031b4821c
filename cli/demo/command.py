"""`demo`: every scene in its order, one line each, and exit code 0 only if all of it was seen."""

import asyncio
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.text import Text

import signoff
from signoff.cli.demo import scenes
from signoff.cli.demo.scenes import Scene
from signoff.cli.demo.stage import Stage, open_stage
from signoff.cli.options import AsJson
from signoff.cli.output import Output, run
from signoff.cli.stopping import stop_signals
from signoff.contracts.errors import ConfigError, Refused

app = typer.Typer(rich_markup_mode=None)

T = TypeVar("T")


@app.command()
def demo(
    stay: Annotated[bool, typer.Option("--stay", help="Keep the server for a look around, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Play the whole story unattended, with kills and resets; exit code 0 only if everything was really seen."""
    run(lambda out: _demo(out, stay), as_json=as_json)


async def _demo(out: Output, stay: bool) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="signoff-demo-") as folder, stop_signals() as stop:
        async with open_stage(Path(folder), demo_manifest()) as stage:
            out.say(f"a server, a worker and a gateway of its own in {folder}", "")
            seen = await _unless(stop.wait(), _play(out, stage))
            out.say("", f"all of it was seen, in {time.monotonic() - began:.0f} s", "", "in Temporal UI:")
            data = [{"seen": each.words, "turn": each.turn.workflow_id, "link": stage.link(each.turn)} for each in seen]
            out.show(data, *(f"  {each['link']}" for each in data))
            if stay:
                out.say("", "the server stays until Ctrl-C")
                await stop.wait()
            else:
                out.say("(the server ends here; `signoff demo --stay` keeps it for a look around)")
    return 0


async def _play(out: Output, stage: Stage) -> list[Scene]:
    seen: list[Scene] = []

    def tick(scene: Scene) -> Scene:
        out.say(Text("✓ ", "green") + Text(scene.words))
        seen.append(scene)
        return scene

    cheap = tick(await scenes.by_itself(stage))
    waiting, cancelling = await scenes.two_waiting(stage)
    booking = tick(waiting).turn
    out.say(Text("✓ ", "green") + Text(await scenes.killed_in_the_middle(stage, booking, cancelling)))
    # The server takes 20 s to notice what happened to that worker; meanwhile the rest of the story.
    doubtful = asyncio.create_task(scenes.left_in_doubt(stage, cancelling))
    again = asyncio.create_task(scenes.finished_with_its_key(stage, booking))
    try:
        tick(await scenes.denied(stage))
        tick(await scenes.denied_by_policy(stage))
        signalled = tick(await scenes.by_signal(stage))
        tick(await again)
        tick(await doubtful)
    finally:
        for task in (doubtful, again):
            task.cancel()
    for key, approve in ((booking, True), (cheap.turn, False), (signalled.turn, True)):
        tick(await scenes.reset(stage, key, approve=approve))
    tick(await scenes.reset(stage, cancelling, approve=True, code="in_doubt"))
    return _unique(seen)


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


def _unique(seen: Sequence[Scene]) -> list[Scene]:
    """The last scene of each turn: one link a turn."""
    return list({scene.turn: scene for scene in seen}.values())


def demo_manifest() -> Path:
    """The travel desk of the repository. Raises `ConfigError` where there is none."""
    path = Path(signoff.__file__).resolve().parents[2] / "examples" / "travel_desk" / "signoff.yaml"
    if not path.exists():
        raise ConfigError("the demo plays on the travel desk of Signoff's repository: run it in a clone of it")
    return path
