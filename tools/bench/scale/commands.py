"""Measures commands that read a manifest, without a server: the processor seconds of a process, with 20 tools."""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.bench.scale.report import Spread, spread
from tools.bench.scale.stack import StackFailed

TOOLS = 20
MANIFEST_COMMANDS = (
    ("manifest", "validate"),
    ("manifest", "tree"),
    ("tools", "list"),
    ("tools", "explain", "act_0"),
    ("policy", "check"),
    ("people", "list"),
)
_HEAD = """\
version: 1
defaults:
  model: "scripted:many_acts:model"
people:
  - {id: ana, name: Ana Sousa, roles: [approvers, finance]}
  - {id: rui, name: Rui}
policies:
  - {name: no-night, rule: "tool.name == 'act_1' && 'night' in actor.tags", effect: deny, reason: Never at night.}
actors:
  desk:
    instructions: Pay what is asked.
tools:
"""
_TOOL = """\
  act_%(number)d:
    handler: many_acts:act_%(number)d
    scope: generalist
    title: Act %(number)d
    effect: "Act %(number)d: {amount} EUR to {to}"
    requires_approval:
      auto_approve_if: "args.amount < %(number)d && has(args.kind) && args.kind == 'invoice'"
      deny_if: "args.amount > 500%(number)d"
      route_to: "args.amount > 100%(number)d ? ['role:finance'] : ['role:approvers']"
"""
_CODE = """\
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.testing.scripted_model import ScriptedModel, respond


def react(request: CompletionRequest) -> Completion:
    return respond("done")


model = ScriptedModel(react)
"""
_HANDLER = '''

async def act_%(number)d(amount: int, to: str, kind: str = "invoice") -> str:
    """Do the act %(number)d.

    Args:
        amount: How much, in EUR.
        to: Whom.
        kind: Its kind.
    """
    return "done"
'''


def write_project(folder: Path, tools: int = TOOLS) -> Path:
    """Write a manifest whose tools have three rules each. Return its path."""
    numbers = [{"number": number} for number in range(tools)]
    (folder / "many_acts.py").write_text(_CODE + "".join(_HANDLER % each for each in numbers), encoding="utf-8")
    manifest = folder / "signoff.yaml"
    manifest.write_text(_HEAD + "".join(_TOOL % each for each in numbers), encoding="utf-8")
    return manifest


def measure_commands(folder: Path, repetitions: int) -> dict[str, Spread]:
    """Each command runs once before the clock starts, so that all modules are compiled."""
    manifest = write_project(folder)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    # An installation has compiled modules. Development environments often forbid them.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    environment = kept | {"SIGNOFF_MANIFEST": str(manifest), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    found = {}
    for words in (("--help",), *MANIFEST_COMMANDS):
        taken = [_processor_seconds(words, folder, environment) for _ in range(repetitions + 1)]
        found[f"`signoff {' '.join(words)}`, processor, s"] = spread(taken[1:])
    return found


def _processor_seconds(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> float:
    # Usage counts ended children, and no other child ends during the command.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "signoff.cli.main", *words]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise StackFailed(f"`signoff {' '.join(words)}` said: {done.stderr.strip()}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
