import hashlib

import pytest
from dkim.canonicalization import CanonicalizationPolicy
from hypothesis import given, settings
from hypothesis import strategies as st

from signoff.channels.mail.authentication import body_hash
from signoff.channels.mail.authentication.body_hash import BodyHashes

LETTERS = st.lists(st.sampled_from((b"a", b" ", b"\t", b"\n", b"\n\n", b" \n", b"\r")), max_size=40).map(b"".join)


@pytest.mark.parametrize("form", ["simple", "relaxed"])
@pytest.mark.parametrize("piece", [1, 2, 3, 7, 65_536])
def test_hash_of_pieces_equals_hash_of_the_whole(form: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_hash, "_PIECE", piece)

    @settings(max_examples=200, deadline=None)
    @given(LETTERS)
    def same(body: bytes) -> None:
        whole = CanonicalizationPolicy.from_c_value(f"relaxed/{form}".encode())
        wanted = hashlib.sha256(whole.canonicalize_body(body.replace(b"\n", b"\r\n"))).digest()
        assert BodyHashes(body).of(form) == wanted

    same()


def test_body_over_the_work_limit_has_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BodyHashes(b"a").of("other") is None
    monkeypatch.setattr(body_hash, "MAIL_HASHED_BYTES", 3)
    hashes = BodyHashes(b"ab")
    assert (hashes.of("simple") is None, hashes.of("relaxed") is None, hashes.of("simple") is None) == (
        False,
        True,
        False,
    )
    monkeypatch.setattr(body_hash, "MAIL_HASH_SECONDS", 0.0)
    assert BodyHashes(b"ab").of("simple") is None
