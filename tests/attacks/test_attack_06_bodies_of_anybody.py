"""Attack 6: a body without end by `GET /channels/x`, or to a channel that is not there, before anybody signs in.

Seen before the mend: the gateway took 256 MiB of one `GET` into its memory, which stayed 262 MB larger, and answered
401. Seen to fail without it: with `gateway/transport/middleware.py` letting bodies of a `GET` and chunked ones
through, and `gateway/transport/body_limit.py` giving an unknown channel 1 MiB.
"""

from collections.abc import Iterator

import psutil
import pytest
from attack_site import AttackSite
from stranger import head, pour

MIB = 1 << 20
POURED = 256


def pieces(count: int = POURED) -> Iterator[bytes]:
    return iter([b"x" * MIB] * count)


def memory(site: AttackSite) -> int:
    return int(psutil.Process(site.processes["gateway"].pid).memory_info().rss)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", ["/channels/mail", "/channels/nowhere", "/", "/v1/turns", "/healthz"])
async def test_a_method_that_says_nothing_brings_no_body(channel_site: AttackSite, method: str, path: str) -> None:
    # Refused by its head: what follows is not read, whatever length it claims. Without the refusal of a length in
    # `Guard._refusal` all 256 MiB were taken and answered as if there were none.
    begins = head(channel_site.url, method, path, content_length=str(POURED * MIB))
    answer = await pour(channel_site.url, begins, pieces())
    assert answer.status in (400, 0)
    assert answer.sent < POURED * MIB


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "TRACE"])
async def test_a_body_that_says_no_length_is_not_read(channel_site: AttackSite, method: str) -> None:
    # Chunks are refused as such. Without the refusal of `Transfer-Encoding` in `Guard._refusal` all 256 MiB were taken.
    begins = head(channel_site.url, method, "/channels/mail", transfer_encoding="chunked")
    chunk = f"{MIB:x}\r\n".encode() + b"x" * MIB + b"\r\n"
    answer = await pour(channel_site.url, begins, iter([chunk] * POURED))
    assert answer.status in (411, 0)
    assert answer.sent < POURED * MIB


async def test_a_channel_is_looked_up_before_its_body_is_read(channel_site: AttackSite) -> None:
    # Where there is none nothing is read. With 1 MiB of room for an unknown channel in `BodyLimit._read` its body was
    # waited for, and answered 408.
    begins = head(channel_site.url, "POST", "/channels/nowhere", content_length=str(MIB))
    answer = await pour(channel_site.url, begins, iter(()))
    assert answer.status == 404


async def test_nobody_without_a_token_has_a_body_read(channel_site: AttackSite) -> None:
    # 401 at the head of it. Without `AuthenticationMiddleware` the body was waited for, and answered 408.
    begins = head(channel_site.url, "POST", "/v1/turns", content_length=str(MIB), content_type="application/json")
    answer = await pour(channel_site.url, begins, iter(()))
    assert answer.status == 401


async def test_all_of_it_leaves_the_gateways_memory_as_it_was(channel_site: AttackSite) -> None:
    # A quarter of a gigabyte, four times. Without the refusal of a length in `Guard._refusal` the gateway grew by 255
    # MiB.
    begins = head(channel_site.url, "GET", "/channels/mail", content_length=str(POURED * MIB))
    before = 0
    for number in range(5):
        # What the first one has it import and allocate stays, whoever comes.
        before = before if number > 1 else memory(channel_site)
        await pour(channel_site.url, begins, pieces())
    assert memory(channel_site) - before < 32 * MIB
