from pathlib import Path

import certifi
import pytest
from tables import table

from signoff.client.client import Client
from signoff.keys.tls_trust import load_trust


def test_authorities_are_loaded_once_per_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    usual = load_trust()
    assert load_trust() is usual
    assert usual.cert_store_stats()["x509"] > 50
    one = tmp_path / "one.pem"
    one.write_text(
        Path(certifi.where()).read_text().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(one))
    company = load_trust()
    assert (company.cert_store_stats()["x509"], company is load_trust()) == (1, True)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert load_trust() is usual


@table(("url", "reads"), ("http://127.0.0.1:1", False), ("https://gateway.example", True))
async def test_plain_http_client_loads_no_authorities(url: str, reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr("ssl.SSLContext.load_verify_locations", lambda *given, **more: read.append(given))
    async with Client(url, ""):
        assert bool(read) is reads
