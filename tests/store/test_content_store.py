from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from signoff.contracts.call import Place
from signoff.contracts.canonical_json import NotCanonical, json_bytes
from signoff.contracts.content import BlobRef, Content
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey
from signoff.contracts.limits import INLINE_BYTES
from signoff.formats.replace import replace
from signoff.store.content_store import fetch_in, is_sealed, keep, load, load_in, seal_place, to_content
from signoff.store.store import Store
from signoff.store.tables import BLOBS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)

HERE = SessionKey("main", "s")


@pytest.mark.parametrize("char", ["a", "é", "東", "🛫", '"', "\n"])
@pytest.mark.parametrize("extra", [0, 1])
async def test_json_up_to_eight_kib_stays_inline(store: Store, char: str, extra: int) -> None:
    width = len(json_bytes(char)) - 2
    text = char * ((INLINE_BYTES - 2) // width)
    text += "a" * (INLINE_BYTES - len(json_bytes(text)) + extra)
    content = await to_content(store, text, HERE)
    assert (content.blob is not None) is bool(extra)
    assert await load(store, content) == text
    if content.blob is not None:
        assert content.blob.preview == text[:200]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(value=JSON)
async def test_every_json_value_survives_storage(store: Store, value: Any) -> None:
    assert await load_in(store, await to_content(store, value, HERE), HERE) == value
    kept = Content(blob=await keep(store, json_bytes(value), HERE))
    assert await load_in(store, Content.model_validate_json(kept.model_dump_json()), HERE) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"a": {1, 2}}, object(), [b"x"]])
async def test_non_json_value_is_refused(store: Store, value: Any) -> None:
    with pytest.raises(NotCanonical):
        await to_content(store, value, HERE)


async def test_missing_blob_is_an_unavailable_store(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="is not in this store"):
        await load(store, Content(blob=BlobRef(sha256="0" * 64, size=3)))


async def test_altered_blob_is_rejected(store: Store) -> None:
    ref = await store.put_blob(b'"420"', HERE)
    await store.run(lambda connection: connection.execute(update(BLOBS).values(body=b'"999"')).close())
    with pytest.raises(StoreUnavailable, match="was changed"):
        await load(store, Content(blob=ref))


@pytest.mark.parametrize("other", [SessionKey("main", "t"), SessionKey("acme", "s")])
async def test_blob_is_readable_only_in_its_session(store: Store, other: SessionKey) -> None:
    content = await to_content(store, "x" * (INLINE_BYTES + 1), HERE)
    ref = content.blob
    assert ref is not None
    unsealed = replace(ref, seal="")
    for found, place in ((ref, other), (unsealed, HERE)):
        with pytest.raises(StoreUnavailable, match="is not in this store"):
            await load_in(store, Content(blob=found), place)
        with pytest.raises(StoreUnavailable, match="is not in this store"):
            await fetch_in(store, found, place)
    assert await fetch_in(store, ref, HERE) == json_bytes("x" * (INLINE_BYTES + 1))


@pytest.mark.parametrize(
    "change",
    [{"actor": "bank"}, {"route": "loan"}, {"step": "pay"}, {"seal": ""}, {"seal": "0" * 32}],
)
async def test_seal_proves_one_place_of_one_session(store: Store, change: dict[str, str]) -> None:
    here = SessionKey("main", "s")
    place = await seal_place(store, here, Place(actor="desk", route="trip", step="ask"))
    assert await is_sealed(store, here, place)
    assert not await is_sealed(store, here, replace(place, **change))
    assert not await is_sealed(store, SessionKey("main", "t"), place)
    assert not await is_sealed(store, SessionKey("other", "s"), place)
