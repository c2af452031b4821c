"""Attack 8: forms as large as a channel takes, signed by nobody, each of which took seconds to parse.

Seen before the mend: a form of mail of 12 MiB cost the gateway 1.3 s of processor time before its signature was looked
at, 20 times what its bytes cost. Seen to fail without it: `test_a_form_that_nobody_signed_costs_no_more_than_its_bytes`
with `channels/mail/provider_requests.py` reading the whole form first, and
`test_a_small_form_of_many_fields_is_refused_uncounted` with pages reading theirs by Starlette's parser. That health is
answered all the while held without it as well, but not where such forms are read on the event loop.
"""

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import psutil
import pytest
from attack_site import AttackSite
from health_probe import probed
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
    begins = head(site.url, "POST", path, content_type=kind, content_length=str(len(body)))
    return await pour(site.url, begins, _pieces(body))


def _pieces(body: bytes) -> Iterator[bytes]:
    return (body[start : start + MIB] for start in range(0, len(body), MIB))


@pytest.mark.parametrize("name", BODIES)
async def test_a_form_that_nobody_signed_holds_up_nobody(channel_site: AttackSite, name: str) -> None:
    # It is refused as forged, and health is answered within a second all the while. With the whole form read by
    # `MailgunFormat.verify`, and on the event loop by `Email.read`, health took 1.8 seconds.
    kind, body = BODIES[name]
    async with probed(channel_site.url) as found:
        for _ in range(ROUNDS):
            answers = await asyncio.gather(
                *(posted(channel_site, "/channels/mail", kind, body) for _ in range(AT_ONCE))
            )
            assert {answer.status for answer in answers} <= {401, 503}
            assert 401 in {answer.status for answer in answers}
    assert found.in_time, found


@pytest.mark.parametrize("name", ["escapes", "fields", "parts", "line ends"])
async def test_a_form_that_nobody_signed_costs_no_more_than_its_bytes(channel_site: AttackSite, name: str) -> None:
    # In processor time of the gateway, against as many bytes that are no form. With the whole form read by
    # `MailgunFormat.verify` escapes cost 1.9 seconds, and without a limit of fields fields cost 7.2 and parts 1.5; line
    # ends cost nothing with the parser of today.
    kind, body = BODIES[name]
    plain = await _cost(channel_site, "text/plain", body)
    assert await _cost(channel_site, kind, body) <= 2 * plain + 0.5


async def _cost(site: AttackSite, kind: str, body: bytes) -> float:
    process = psutil.Process(site.processes["gateway"].pid)
    before = process.cpu_times()
    for _ in range(ROUNDS):
        assert (await posted(site, "/channels/mail", kind, body)).status == 401
    after = process.cpu_times()
    return (after.user + after.system) - (before.user + before.system)


@pytest.mark.parametrize("path", ["/login", "/link/abc.def", "/logout"])
async def test_a_page_open_to_all_takes_no_large_form(channel_site: AttackSite, path: str) -> None:
    # Refused by what it says of its length. With `REQUEST_BODY_BYTES` for every path in `_body_bytes` its body was
    # waited for, and answered 408.
    kind = "application/x-www-form-urlencoded"
    # The head alone: who is hung up on in the middle of a body may never read the answer.
    begins = head(channel_site.url, "POST", path, content_type=kind, content_length=str(MIB))
    answer = await pour(channel_site.url, begins, iter(()))
    assert answer.status == 413


async def test_a_small_form_of_many_fields_is_refused_uncounted(channel_site: AttackSite) -> None:
    # Also one that fits; and no parser of parts sees what a page is sent. Without `max_num_fields` in `_parse` the
    # fields were read, and without the look at the type in `read_form` the parts were taken for a form.
    kind = "application/x-www-form-urlencoded"
    assert (await posted(channel_site, "/login", kind, b"a&" * 15_000)).status == 422
    assert (await posted(channel_site, "/login", "multipart/form-data; boundary=x", b"--x\r\n" * 5_000)).status == 415


async def test_a_message_of_texts_is_small(channel_site: AttackSite) -> None:
    # Twilio's signature is over every field, so that a stranger's are parsed: of 64 KiB at most. With 3 MiB of room in
    # `Twilio` the larger form was parsed as well, and answered 401.
    kind = "application/x-www-form-urlencoded"
    assert (await posted(channel_site, "/channels/texts", kind, b"a=" + b"%41" * 30_000)).status == 413
    assert (await posted(channel_site, "/channels/texts", kind, b"a=" + b"%41" * 20_000)).status == 401
