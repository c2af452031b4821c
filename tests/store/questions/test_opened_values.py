from datetime import timedelta

from signoff.store.questions.opened_values import OpenedValues
from signoff.store.store import Store


async def test_opened_page_counts_once_per_person_and_question(store: Store) -> None:
    opened = OpenedValues(store)
    for page in (1, 1, 2, 7):
        await opened.add("q" * 64, "main", "ana", page)
    assert await opened.count("q" * 64, "main", "ana", 3) == 2
    assert await opened.count("q" * 64, "main", "bo", 3) == 0
    assert await opened.count("q" * 64, "other", "ana", 3) == 0
    assert await opened.count("r" * 64, "main", "ana", 3) == 0


async def test_old_openings_are_forgotten(store: Store) -> None:
    opened = OpenedValues(store)
    await opened.add("q" * 64, "main", "ana", 1)
    await opened.sweep(timedelta(days=1))
    assert await opened.count("q" * 64, "main", "ana", 1) == 1
    await opened.sweep(timedelta(days=-1))
    assert await opened.count("q" * 64, "main", "ana", 1) == 0
