from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certified(folder: Path, host: str = "127.0.0.1") -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    of_host: x509.GeneralName = x509.DNSName(host)
    with suppress(ValueError):
        of_host = x509.IPAddress(ip_address(host))
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([of_host]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file = folder / f"{host}.pem"
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    file.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem) + private)
    return file
