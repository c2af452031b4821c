"""Before the fix an email form of 12 MiB cost 1.3 s of processor time before its signature check.

Health answered even without the fix, but not if such forms are read on the event loop.
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
"""From one address; more are refused by their bytes alone."""
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
async def test_large_unsigned_form_does_not_delay_health(channel_site: AttackSite, name: str) -> None:
    # The form is refused as forged, and at the same time health answers within a second. With the whole form read by
    # `MailgunFormat.verify`, and on the event loop by `EmailChannel.read`, health took 1.8 seconds.
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
async def test_unsigned_form_costs_no_more_than_its_bytes(channel_site: AttackSite, name: str) -> None:
    # Measured as the gateway's processor time against equally many bytes that are no form. With the whole form read by
    # `MailgunFormat.verify` escapes cost 1.9 seconds, and without a limit of fields fields cost 7.2 and parts 1.5.
    # Line ends cost nothing with the current parser.
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
async def test_public_page_refuses_a_large_form(channel_site: AttackSite, path: str) -> None:
    # Refused by its content length. With `REQUEST_BODY_BYTES` for every path in `_body_bytes` the gateway waited for
    # its body and answered 408.
    kind = "application/x-www-form-urlencoded"
    # Send the head only: a sender cut off in the middle of a body may never read the answer.
    begins = head(channel_site.url, "POST", path, content_type=kind, content_length=str(MIB))
    answer = await pour(channel_site.url, begins, iter(()))
    assert answer.status == 413


async def test_small_form_with_many_fields_is_refused(channel_site: AttackSite) -> None:
    # Even a form that fits is refused, and no multipart parser sees a page's body. Without `max_num_fields` in
    # `_parse` the fields were read, and without the check of the type in `read_form` the parts were read as a form.
    kind = "application/x-www-form-urlencoded"
    assert (await posted(channel_site, "/login", kind, b"a&" * 15_000)).status == 422
    assert (await posted(channel_site, "/login", "multipart/form-data; boundary=x", b"--x\r\n" * 5_000)).status == 415


async def test_message_larger_than_64_kib_from_twilio_is_refused(channel_site: AttackSite) -> None:
    # Twilio signs every field, so a stranger's fields are parsed, but at most 64 KiB. With 3 MiB allowed in `Twilio`
    # the larger form was parsed as well, and answered 401.
    kind = "application/x-www-form-urlencoded"
    assert (await posted(channel_site, "/channels/texts", kind, b"a=" + b"%41" * 30_000)).status == 413
    assert (await posted(channel_site, "/channels/texts", kind, b"a=" + b"%41" * 20_000)).status == 401
