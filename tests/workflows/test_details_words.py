"""What a model writes into a card is text in Temporal's Markdown, never Markdown."""

import re

import pytest

from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.content import Content
from signoff.contracts.person import Principal
from signoff.workflows import temporal_metadata


def _row(effect: str) -> str:
    """The table's one row, for a request whose effect reads so."""
    request = ApprovalRequest(
        id="main.s.t.c1.1",
        code="K7Q2FM",
        digest="d",
        definition="d",
        tenant="main",
        session="s",
        turn="t",
        actor="desk",
        call="c1.1",
        tool="pay",
        args=Content(inline={}),
        card=Card(effect=effect),
        rule="always",
        policy_hash="h",
        approvers=("role:approvers",),
        requester=Principal(user="guest", name="Guest"),
    )
    rows = [line for line in temporal_metadata.details([request], []).splitlines() if line.startswith("| K7Q")]
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("effect", ["a|b", "a\\|b", "a\\\\|b", "a\nb", "a\r\n| x |", "a\u2028b", "\\"])
def test_no_effect_adds_a_cell_or_a_line(effect: str) -> None:
    """A row has its five cells whatever bars, backslashes and line ends the words hold."""
    bare = re.sub(r"\\.", "", _row(effect))
    assert bare.count("|") == 6


@pytest.mark.parametrize(
    "effect", ["![x](http://a/b)", "[approve](javascript:x)", "<img src=x>", "`x`", "**x**", "&lt;"]
)
def test_no_effect_is_a_link_a_picture_or_markup(effect: str) -> None:
    """Every character that means something is escaped, and the words can be had back."""
    cell = _row(effect).split(" | ")[1]
    assert not re.search(r"[`*_\[\]<>!#~&]", re.sub(r"\\.", "", cell))
    assert re.sub(r"\\(.)", r"\1", cell) == effect
