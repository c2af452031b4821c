"""A company's footer, banner or greeting must not block its approvers' answers.

If all text below our first line is ignored, the bottom posts approve.
"""

from pathlib import Path

from answer_rigs import answer_rig, answered

NOTICE = (
    "This e-mail and any attachments are confidential and intended solely for the addressee. If you are not the "
    "intended recipient, please notify the sender and delete this message."
)
KNOWN = (
    f"Approve\n\n{NOTICE}",
    f"Approve\n\nBest regards,\nBo\nHead of Finance\nExample Trading GmbH\nTel. +49 30 1234567\n\n{NOTICE}",
    "[EXTERNAL] Approve",
    "[EXTERNAL]\n\nCAUTION: This email originated from outside of the organization. Do not click links or open "
    "attachments unless you recognize the sender and know the content is safe.\n\nApprove",
    "Hi all,\n\nApprove\n\nThanks,\nBo",
    "Good morning Signoff,\napproved.\n\nSent from my Galaxy S24 Ultra",
)
UNKNOWN = (
    "[EXTERNAL] only if it is cheap",
    "CAUTION: This email originated from outside. Pay half of it.\n\nApprove",
    f"Approve\n\n{NOTICE} Pay nothing before Friday.",
    "Hi unless it rains,\n\nApprove",
)


async def test_known_company_text_does_not_stop_an_answer(tmp_path: Path) -> None:
    # Notices, banners, greetings and devices are recognized by their beginning and every sentence. Without
    # `_without_banners` `[EXTERNAL] Approve` was asked back, and without the check of each sentence of a notice the
    # one about half of it approved.
    async with answer_rig("email", tmp_path) as rig:
        for number, words in enumerate(KNOWN, 1):
            assert await answered(rig, words, number) == "approved", words
        for number, words in enumerate(UNKNOWN, 50):
            assert await answered(rig, words, number) == "pending", words


async def test_footer_below_a_quote_is_ignored_and_a_bottom_post_is_not(tmp_path: Path) -> None:
    # With or without quote marks, also behind the card's own first line. Without `_is_notice` the footers were asked
    # back, and with all text below a quote omitted in `newly_written` the first bottom post approved.
    quotes = (
        "On Sun, 22 Nov 2026, Signoff wrote:\n> Pay 1",
        "##- Write your answer above this line -##\n\nPay 2 to Payee\n\n##=##",
        "-----Original Message-----\nFrom: Signoff\n\nPay 3\n\n##=##",
    )
    async with answer_rig("email", tmp_path) as rig:
        for number, quote in enumerate(quotes, 1):
            assert await answered(rig, f"Approve\n\n{quote}\n\n{NOTICE}", number) == "approved", quote
            assert await answered(rig, f"Approve\n\n{quote}\n\nbut half of it", 10 + number) == "pending", quote
        cut = "##- Write your answer above this line -##\n\nbut half of it"
        assert await answered(rig, f"Approve\n\n{cut}", 30) == "pending"
