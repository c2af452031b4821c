"""What a decision is about: its digest and revision, or those that its edit makes."""

from collections.abc import Mapping
from typing import Any

import pytest

from signoff.approvals.binding import names
from signoff.approvals.digest import call_digest
from signoff.contracts.decision import Decision

ARGS = {"amount": 420}
EDITED = {"amount": 380}


def digest_of(args: Mapping[str, Any]) -> str:
    """The digest of the one call with `args`."""
    return call_digest(tenant="main", turn="t", call="c1.1", tool="pay", definition="d", args=args)


def decision(**fields: Any) -> Decision:
    """An approval of the one call."""
    return Decision(**{"approval_id": "main.s.t.c1.1", "verdict": "approved"} | fields)


@pytest.mark.parametrize(
    ("fields", "revision", "about"),
    [
        ({}, 1, True),
        ({}, 2, False),
        ({"revision": 1}, 1, True),
        ({"revision": 2}, 2, True),
        ({"revision": 1}, 2, False),
        ({"revision": 2}, 1, False),
        ({"revision": 0}, 1, True),
        ({"digest": digest_of(ARGS)}, 1, True),
        ({"digest": digest_of(EDITED)}, 1, False),
        ({"digest": digest_of(ARGS), "revision": 2}, 2, True),
        ({"digest": digest_of(EDITED), "revision": 2}, 2, False),
    ],
)
def test_an_answer_names_its_digest_and_revision(fields: Any, revision: int, about: bool) -> None:
    """What is left out contradicts nothing; no revision means the first."""
    assert names(decision(**fields), digest_of(ARGS), revision, digest_of) is about


@pytest.mark.parametrize(
    ("fields", "revision", "about"),
    [
        ({"edited_args": EDITED, "revision": 1}, 2, True),
        ({"edited_args": EDITED, "revision": 1, "digest": digest_of(ARGS)}, 2, True),
        ({"edited_args": {"amount": 380.0}, "revision": 1}, 2, True),
        ({"edited_args": ARGS, "revision": 1}, 2, False),
        ({"edited_args": {}, "revision": 1}, 2, False),
        ({"edited_args": EDITED, "revision": 1}, 1, False),
        ({"edited_args": EDITED, "revision": 2}, 2, False),
        ({"edited_args": EDITED, "revision": 2}, 3, True),
        ({"edited_args": EDITED}, 2, True),
    ],
)
def test_an_edit_is_about_what_it_made(fields: Any, revision: int, about: bool) -> None:
    """The next revision, and exactly the arguments that the editor wrote."""
    assert names(decision(**fields), digest_of(EDITED), revision, digest_of) is about


def test_arguments_without_a_digest_are_about_nothing() -> None:
    """An edit that cannot be bound is no answer."""
    unbound = decision(edited_args={"amount": 2**60}, revision=1)
    assert not names(unbound, digest_of(EDITED), 2, digest_of)
