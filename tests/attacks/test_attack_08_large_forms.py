"""Attack 8: forms as large as a channel takes, signed by nobody, each of which took seconds to parse.

Seen before the mend: eight forms of mail of 14 MiB held up every other request for many seconds, and one page's form
of a million fields for one. Seen to fail without it: with `channels/mail_shapes.py` reading the whole form before its
signature is looked at, and pages reading theirs by Starlette's parser.
"""

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from attack_site import AttackSite
from health_probe import at_rest, in_time, probed
from stranger import Answered, head, pour

MIB = 1 << 20
AT_ONCE = 2
"""Of one address; more are refused by their bytes alone."""
ROUNDS = 2
BODIES = {
    "escapes": ("application/x-www-form-urlencoded", b"body-mime=" + b"%41" * (4 * MIB)),
    "fields": ("application/x-www-form-urlencoded", b"a&" * (7 * MIB)),
    "parts": (
        "multipart/form-data; boundary=xyz",
        b'--xyz\r\nContent-Disposition: form-data; name="b"\r\n\r\n' * 200_000,
    ),
    "line ends": (
        "multipart/form-data; boundary=xyz",
        b'--xyz\r\nContent-Disposition: form-data; name="b"\r\n\r\n' + b"\r\n--xy" * (2 * MIB),
    ),
    "signature last": (
        "application/x-www-form-urlencoded",
        b"body-mime=" + b"%41" * (4 * MIB) + f"&timestamp=1&token=t&signature={quote('x' * 64)}".encode(),
    ),
}


async def posted(site: AttackSite, path: str, kind: str, body: bytes) -> Answered:
    """One form."""
    begins = head(site.url, "POST", path, content_type=kind, content_length=str(len(body)))
    return await pour(site.url, begins, _pieces(body))


def _pieces(body: bytes) -> Iterator[bytes]:
    return (body[start : start + MIB] for start in range(0, len(body), MIB))


@pytest.mark.parametrize("name", BODIES)
async def test_a_form_that_nobody_signed_holds_up_nobody(channel_site: AttackSite, name: str) -> None:
    """It is refused as forged, and health is answered within a second all the while."""
    kind, body = BODIES[name]
    rest = await at_rest(channel_site.url)
    async with probed(channel_site.url) as taken:
        for _ in range(ROUNDS):
            answers = await asyncio.gather(
                *(posted(channel_site, "/channels/mail", kind, body) for _ in range(AT_ONCE))
            )
            assert {answer.status for answer in answers} <= {401, 503}
            assert 401 in {answer.status for answer in answers}
    assert in_time(taken, rest), (max(taken), rest)


@pytest.mark.parametrize("path", ["/login", "/link/abc.def", "/logout"])
async def test_a_page_open_to_all_takes_no_large_form(channel_site: AttackSite, path: str) -> None:
    """Refused by what it says of its length."""
    kind = "application/x-www-form-urlencoded"
    answer = await posted(channel_site, path, kind, b"a&" * (MIB // 2))
    assert answer.status == 413


async def test_a_small_form_of_many_fields_is_refused_uncounted(channel_site: AttackSite) -> None:
    """Also one that fits; and no parser of parts sees what a page is sent."""
    kind = "application/x-www-form-urlencoded"
    assert (await posted(channel_site, "/login", kind, b"a&" * 15_000)).status == 422
    assert (await posted(channel_site, "/login", "multipart/form-data; boundary=x", b"--x\r\n" * 5_000)).status == 415


async def test_a_message_of_texts_is_small(channel_site: AttackSite) -> None:
    """Twilio's signature is over every field, so that a stranger's are parsed: of 64 KiB at most."""
    kind = "application/x-www-form-urlencoded"
    assert (await posted(channel_site, "/channels/texts", kind, b"a=" + b"%41" * 30_000)).status == 413
    assert (await posted(channel_site, "/channels/texts", kind, b"a=" + b"%41" * 20_000)).status == 401
