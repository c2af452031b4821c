from datetime import UTC, datetime, timedelta
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from tables import table

from signoff.approvals.card import render_card
from signoff.contracts.approval import ApproverGroup, Card, TurnQuestion
from signoff.workflows.temporal_metadata import DETAIL_CHARS, DETAILED_REQUESTS, DETAILED_ROWS, details

MARKUP = [
    "![x](http://a/b)",
    "[approve](javascript:x)",
    "<img src=x>",
    "https://a.example/b www.a.example a@a.example",
    "`x`",
    "``x` ```` y",
    "` # x",
    "`",
    "**x**",
    "&lt;",
    "a|b",
    "a\\|b",
    "\\",
    "\\`![x](http://a/b)\\`",
]
BREAKS = ["a\n# b", "a\r\n\r\n## b", "a\u2028# b", "a\n\n![x](http://a/b)", "a\n```\n# b"]


def _request(effect: str = "Pay 20 to Ana", **changed: Any) -> TurnQuestion:
    opened = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    times = {"opened_at": opened, "expires_at": opened + timedelta(days=1)}
    asked = {"id": "main.s.t.c1.1", "code": "K7Q2FM", "question_hash": "0" * 64, "approvers": ("role:approvers",)}
    return TurnQuestion(**{"effect": effect, **asked, **times, **changed})


def _written(request: TurnQuestion, card: Card | None = None, address: str = "") -> str:
    return details([request], [], {} if card is None else {request.id: card}, lambda approval: address and address)


def _tokens(written: str) -> list[Token]:
    found: list[Token] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(written):
        found += [token, *(token.children or ())]
    return found


def _card(**args: object) -> Card:
    return render_card(effect="", title="", tool="pay", args=args, schema={})


@table("text", *(MARKUP + BREAKS))
def test_call_text_is_rendered_as_code_only(text: str) -> None:
    def parts(given: str) -> list[str]:
        request = _request(given, approvers=(f"user:{given}",), groups=(ApproverGroup(of=(given,)),))
        waiting = _tokens(_written(request, _card(**{given: given}), "https://desk.example/approvals/x"))
        answered = _tokens(_written(_request(given, state="denied", decided_name=given)))
        return [token.type for token in (*waiting, *answered)]

    # An invisible character adds a note to the card.
    plain = "plain\u200b" if "\u2028" in text else "plain"
    assert parts(text) == parts(plain)
    assert parts(plain).count("link_open") == 1


@table("text", *MARKUP)
def test_escaped_text_can_be_recovered(text: str) -> None:
    assert text in [token.content for token in _tokens(_written(_request(text))) if token.type == "code_inline"]


def test_request_details_show_action_approvers_deadline_and_answer_format() -> None:
    secret = render_card(
        effect="Pay 20 to Ana", title="", tool="pay", args={"amount": 20, "pin": "4711-9"}, schema={}, secrets=("pin",)
    )
    request = _request(approvers=("role:finance", "user:bo"), quorum=2)
    written = _written(request, secret, "https://desk.example/approvals/main.s.t.c1.1")
    assert written.splitlines() == [
        "### Waiting for people",
        "",
        "The workflow wrote these details for operators. Decide by the card in the inbox: Signoff draws the card from "
        "its store.",
        "",
        "**K7Q-2FM**: [open the card](https://desk.example/approvals/main.s.t.c1.1)",
        "",
        "- action: `Pay 20 to Ana`",
        "- who may answer: `role:finance`, `user:bo`; 2 people have to approve",
        "- asked 2026-03-02 09:30 UTC, answer by 2026-03-03 09:30 UTC",
        "- arguments:",
        "  - `Amount`: `20`",
        "  - `Pin`: `hidden, 6 characters`",
        "- the `decide` update or the `approval_response` signal takes "
        '`{"approval_id": "main.s.t.c1.1", "revision": 1, "verdict": "approved"}`',
    ]


def test_long_details_are_counted_and_truncated() -> None:
    many = [_request(id=f"main.s.t.c1.{number}") for number in range(1, DETAILED_REQUESTS + 4)]
    card = _card(**{f"k{number}": "x" * 400 for number in range(DETAILED_ROWS + 5)})
    written = details(many, [], {each.id: card for each in many}, lambda approval: "")
    assert written.count("**K7Q-2FM**") == DETAILED_REQUESTS
    assert "3 more wait." in written
    assert "5 more on the card" in written
    assert max(map(len, written.splitlines())) < 2 * DETAIL_CHARS
    assert f"`{'x' * (DETAIL_CHARS - 1)}…`" in written


def test_details_of_a_removed_tool_explain_its_absence() -> None:
    lines = _written(_request(), Card(effect="Pay", note="this worker has no tool `pay`")).splitlines()
    assert (
        "- note: ``this worker has no tool `pay` ``" in lines or "- note: `` this worker has no tool `pay` ``" in lines
    )
    assert "- arguments: on the card" in lines
