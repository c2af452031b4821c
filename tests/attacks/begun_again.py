"""An impostor restarts a turn with the input that the gateway signed, taken from its history."""

from typing import Any

from impostor import ForgedTurn, Impostor

from signoff.contracts.ids import TurnKey


async def begun_again(impostor: Impostor, key: TurnKey, **answers: Any) -> ForgedTurn:
    given = await impostor.input(key)
    forged = await impostor.stand(key, **given.model_dump(mode="json"))
    await forged.forge(**answers)
    return forged
