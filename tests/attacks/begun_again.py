"""A turn restarted by an impostor with the input that the gateway signed, taken from its history."""

from typing import Any

from impostor import ForgedTurn, Impostor

from signoff.contracts.ids import TurnKey


async def begun_again(impostor: Impostor, key: TurnKey, **answers: Any) -> ForgedTurn:
    """Run an impostor under the id of an ended turn, with the honest turn's first event."""
    given = await impostor.input(key)
    forged = await impostor.stand(key, **given.model_dump(mode="json"))
    await forged.forge(**answers)
    return forged
