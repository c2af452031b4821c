import base64

import pytest
from sqlalchemy import text

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.registry.built_in_tools import HANDLE_CHARS
from signoff.store.store import Store
from signoff.store.truncated_results import ResultPiece, TruncatedResults

TURN = TurnKey("main", "s", "t")


async def test_kept_text_is_read_in_pieces(store: Store) -> None:
    rests = TruncatedResults(store)
    handle = await rests.keep(TURN, "fetch", "abcdé")
    assert len(handle) == HANDLE_CHARS
    assert handle == await rests.keep(TURN, "fetch", "abcdé")
    assert await rests.read(TURN, handle, 0, 3) == ResultPiece("fetch", "abc", 0, 5, 3)
    assert await rests.read(TURN, handle, 3, 3) == ResultPiece("fetch", "dé", 3, 5, None)
    assert await rests.read(TURN, handle, 9, 3) == ResultPiece("fetch", "", 9, 5, None)
    assert await rests.read(TURN, handle, 4, -7) == ResultPiece("fetch", "é", 4, 5, None)


@pytest.mark.row("V15", "V07")
@pytest.mark.parametrize("other", [TURN._replace(tenant="x"), TURN._replace(session="x"), TURN._replace(turn="x")])
async def test_handle_is_valid_only_in_its_own_turn(store: Store, other: TurnKey) -> None:
    rests = TruncatedResults(store)
    handle = await rests.keep(TURN, "fetch", "secret")
    own = await rests.keep(other, "fetch", "secret")
    assert own != handle
    assert await rests.read(other, handle, 0, 9) is None
    assert await rests.read(other, own, 0, 9) is not None


async def test_forged_handle_reads_nothing(store: Store) -> None:
    rests = TruncatedResults(store)
    handle = await rests.keep(TURN, "fetch", "secret")
    raw = base64.urlsafe_b64decode(handle)
    forged = [raw[:32] + bytes(16), raw[:32], b"", raw[1:] + raw[:1], raw + b"xyz"]
    for each in (*(base64.urlsafe_b64encode(f).decode() for f in forged), handle.swapcase(), "é" * 64, "=" * 64, "*"):
        assert await rests.read(TURN, each, 0, 9) is None


async def test_lost_or_altered_text_is_a_store_failure(store: Store) -> None:
    rests = TruncatedResults(store)
    handle = await rests.keep(TURN, "fetch", "secret")
    await store.run(lambda connection: connection.execute(text("update blobs set body = :body"), {"body": b"{}"}))
    with pytest.raises(StoreUnavailable, match="not in this store, or was changed"):
        await rests.read(TURN, handle, 0, 9)
    await store.run(lambda connection: connection.execute(text("delete from blobs")))
    with pytest.raises(StoreUnavailable, match="not in this store, or was changed"):
        await rests.read(TURN, handle, 0, 9)
