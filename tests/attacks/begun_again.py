"""A turn begun anew by an impostor with the very input that the gateway signed, as its history tells it."""

from typing import Any

from impostor import ForgedTurn, Impostor

from signoff.contracts.ids import TurnKey


async def begun_again(impostor: Impostor, key: TurnKey, **answers: Any) -> ForgedTurn:
    """An impostor under the id of a turn that is over, whose first event is the honest one's."""
    given = await impostor.input(key)
    forged = await impostor.stand(key, **given.model_dump(mode="json"))
    await forged.forge(**answers)
    return forged
