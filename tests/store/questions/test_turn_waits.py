from question_kit import put, question, take
from sqlalchemy import update

from signoff.contracts.ids import TurnKey
from signoff.store.questions.turn_waits import TurnWaits
from signoff.store.store import Store
from signoff.store.tables import QUESTIONS

TURN = TurnKey("main", "s", "t")


async def test_question_waits_until_it_is_settled(store: Store) -> None:
    await put(store)
    await put(store, question("main.s.u.c1.1", turn="u"))
    found = await TurnWaits(store).read(TURN)
    [open_wait] = found.waits
    assert (open_wait.request, open_wait.revision, open_wait.over_at) == ("main.s.t.c1.1", 1, None)
    assert open_wait.asked_at <= found.now
    assert await take(store, "ana")
    again = await TurnWaits(store).read(TURN)
    [settled] = again.waits
    assert settled.over_at is not None
    assert open_wait.asked_at <= settled.over_at <= again.now


async def test_question_ends_at_its_timeout(store: Store) -> None:
    await put(store)
    await store.run(
        lambda connection: connection.execute(update(QUESTIONS).values(last_at=QUESTIONS.c.opened_at)).close()
    )
    [found] = (await TurnWaits(store).read(TURN)).waits
    assert found.over_at == found.asked_at
