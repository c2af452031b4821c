from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_FILE = Path(__file__).parent / "channels" / "mails" / "servers.yaml"


@dataclass(frozen=True)
class MailServer:
    """`options` are the channel options that docs/channels.md names for it."""

    server: str
    head: str
    options: dict[str, Any] = field(default_factory=dict)
    case: str = ""

    def takes(self, mail: bytes, sender: str) -> bytes:
        filled = self.head.replace("{sender}", sender).replace("{domain}", sender.partition("@")[2])
        return filled.replace("\n", "\r\n").encode() + mail

    def __str__(self) -> str:
        return f"{self.server} {self.case}".strip()


def mail_servers() -> list[MailServer]:
    rows: list[dict[str, Any]] = yaml.safe_load(_FILE.read_text())
    return [MailServer(**row) for row in rows]
