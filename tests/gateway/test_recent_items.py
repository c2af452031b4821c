from datetime import UTC, datetime, timedelta

from signoff.gateway.deps import KEPT, MOST, RecentItems

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_item_is_found_for_a_minute() -> None:
    items: RecentItems[str] = RecentItems()
    items.keep("a", "first", NOW)
    assert items.find("a", NOW) == "first"
    assert items.find("a", NOW + KEPT - timedelta(seconds=1)) == "first"
    assert items.find("a", NOW + KEPT) is None
    assert items.find("a", NOW - timedelta(seconds=1)) is None
    assert items.find("b", NOW) is None
    items.keep("a", "second", NOW + KEPT)
    assert items.find("a", NOW + KEPT) == "second"


def test_oldest_item_is_removed_from_a_full_cache() -> None:
    items: RecentItems[int] = RecentItems()
    for number in range(MOST):
        items.keep(str(number), number, NOW)
    items.keep("0", 0, NOW)
    items.keep("one more", 1, NOW)
    assert (items.find("0", NOW), items.find("1", NOW), items.find("2", NOW)) == (0, None, 2)
