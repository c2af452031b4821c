import pytest
from card_pictures import PICTURE, SLACK, cards_svg, read_slack
from documents import ROOT

from signoff.testing.fake_slack import FakeSlack, SlackMessage


async def test_picture_of_cards_equals_the_cards_of_the_vendors() -> None:
    drawn = await cards_svg()
    for words in (
        "Top up the petty cash of Lisbon by",
        "K7Q-2FM",
        ">Approve<",
        ">Deny<",
        "Approved by Ana Sousa by email",
    ):
        assert words in drawn
    assert PICTURE.read_text(encoding="utf-8") == drawn, "run python tests/channels/card_pictures.py"


def test_unknown_block_cannot_be_drawn() -> None:
    slack = FakeSlack()
    slack.messages = [SlackMessage(SLACK.rpartition(":")[2], "1.1", "x", [{"type": "image", "image_url": "x"}])]
    with pytest.raises(KeyError):
        read_slack(slack)


def test_every_picture_is_on_a_documentation_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for file in (ROOT / "docs" / "images").iterdir():
        assert f"images/{file.name})" in text, f"{file.name} is on no page"
