"""Before the fix the gateway read 256 MiB of one `GET` into memory, before any sign-in."""

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
async def test_get_request_with_a_body_is_refused(channel_site: AttackSite, method: str, path: str) -> None:
    # Refused by its head: the body is not read at any claimed length. Without the refusal of a length in
    # `Guard._refusal` all 256 MiB were read and answered like a request without a body.
    begins = head(channel_site.url, method, path, content_length=str(POURED * MIB))
    answer = await pour(channel_site.url, begins, pieces())
    assert answer.status in (400, 0)
    assert answer.sent < POURED * MIB


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "TRACE"])
async def test_body_without_length_is_not_read(channel_site: AttackSite, method: str) -> None:
    # Chunked bodies are refused. Without the refusal of `Transfer-Encoding` in `Guard._refusal` all 256 MiB were read.
    begins = head(channel_site.url, method, "/channels/mail", transfer_encoding="chunked")
    chunk = f"{MIB:x}\r\n".encode() + b"x" * MIB + b"\r\n"
    answer = await pour(channel_site.url, begins, iter([chunk] * POURED))
    assert answer.status in (411, 0)
    assert answer.sent < POURED * MIB


async def test_unknown_channel_is_refused_before_its_body_is_read(channel_site: AttackSite) -> None:
    # For an unknown channel nothing is read. With 1 MiB allowed to an unknown channel in `BodyLimit._read` the gateway
    # waited for its body and answered 408.
    begins = head(channel_site.url, "POST", "/channels/nowhere", content_length=str(MIB))
    answer = await pour(channel_site.url, begins, iter(()))
    assert answer.status == 404


async def test_missing_token_is_refused_before_the_body_is_read(channel_site: AttackSite) -> None:
    # 401 after the head. Without `AuthenticationMiddleware` the gateway waited for the body and answered 408.
    begins = head(channel_site.url, "POST", "/v1/turns", content_length=str(MIB), content_type="application/json")
    answer = await pour(channel_site.url, begins, iter(()))
    assert answer.status == 401


async def test_refused_bodies_do_not_grow_the_gateways_memory(channel_site: AttackSite) -> None:
    # A quarter of a gigabyte, four times. Without the refusal of a length in `Guard._refusal` the gateway grew by 255
    # MiB.
    begins = head(channel_site.url, "GET", "/channels/mail", content_length=str(POURED * MIB))
    before = 0
    for number in range(5):
        # The first request's imports and allocations stay for any sender.
        before = before if number > 1 else memory(channel_site)
        await pour(channel_site.url, begins, pieces())
    assert memory(channel_site) - before < 32 * MIB
