import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from client_rig import ClientRig
from framework_program import Case, FrameworkProgram, framework_program

from signoff_client import Call

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
async def program() -> AsyncIterator[FrameworkProgram]:
    async with framework_program("claude") as started:
        yield started


async def proposed(rig: ClientRig, case: Case) -> Call:
    call = rig.call(case.turns[0][0][1], "Bash", key=await case.first_key(), wait=0)
    await call.settle()
    return call


async def test_shell_runs_the_edited_command(rig: ClientRig, program: FrameworkProgram, tmp_path: Path) -> None:
    commands = [f"echo one; touch {tmp_path}/proposed", f"sudo -n true; touch {tmp_path}/denied"]
    case = Case((tuple(("Bash", {"command": each}) for each in commands),))
    playing = asyncio.create_task(program.play(rig, case, tool="Bash"))
    call = await proposed(rig, case)
    await rig.decide(call, edited_args={"command": f"echo two; touch {tmp_path}/approved"})
    text = (await playing)["text"]
    assert os.listdir(tmp_path) == ["approved"]
    told = sorted(each[:30] for each in text.split(" | "))
    assert told == ["Approver edited the arguments ", "Not run: a rule denies it: `de", "two"]
    shown = await rig.show(call.id)
    assert (shown["code"], shown["result"]["stdout"]) == ("ok", "two")


async def test_failing_gate_blocks_the_call(rig: ClientRig, program: FrameworkProgram, tmp_path: Path) -> None:
    case = Case(((("Bash", {"command": f"ls; touch {tmp_path}/ran"}),),))
    broken: float = "soon"  # type: ignore[assignment]
    text = (await program.play(rig, case, tool="Bash", wait=broken))["text"]
    assert ("blocking" in text, os.listdir(tmp_path)) == (True, [])
