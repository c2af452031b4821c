from typing import Any

import pytest
from mail_rig import APPROVALS, NOW
from tables import table

from signoff.channels.base import ChannelContext
from signoff.channels.channel_loader import read_options
from signoff.channels.mail.email import EmailChannel
from signoff.channels.mail.options import EmailOptions, SmtpOptions
from signoff.contracts.errors import ConfigError
from signoff.keys.secrets import SecretProvider

SMTP = {"host": "smtp.example.com", "user": "approvals", "password": "env:SMTP_PASSWORD"}
IMAP = {"host": "imap.example.com", "user": "approvals", "password": "env:IMAP_PASSWORD"}
SECRETS = {"SMTP_PASSWORD": "s-one", "IMAP_PASSWORD": "s-two", "HOOK": "s-three"}


async def opened(**changes: Any) -> EmailOptions:
    given = {"smtp": SMTP, "sender": "Signoff <approvals@example.com>", "inbound": {"imap": IMAP}, **changes}
    return EmailOptions.model_validate(await read_options(EmailChannel, given, SecretProvider(environment=SECRETS)))


async def test_usual_options_are_defaults() -> None:
    options = await opened()
    assert (options.smtp.port, options.smtp.tls, options.smtp.password) == (587, "starttls", "s-one")
    assert options.inbound is not None
    assert options.inbound.imap is not None
    assert (options.inbound.imap.port, options.inbound.imap.tls) == (993, "tls")
    assert (options.address, options.sender_name, options.answered_at) == (
        "approvals@example.com",
        "Signoff",
        "approvals@example.com",
    )
    assert (await opened(sender="approvals@example.com")).sender_name == ""


@table(
    ("changes", "expected"),
    ({"smtp": None}, "`smtp`"),
    ({"sender": "Signoff"}, "a sender looks like"),
    ({"sender": "Signoff <a@example.com>, b@example.com"}, "a sender looks like"),
    ({"sender": "Signoff\nBcc: x@example.com <a@example.com>"}, "a sender looks like"),
    ({"reply_to": "Approvals <a@example.com>"}, "an address looks like"),
    ({"reply_to": "A@example.com"}, "in lower case"),
    ({"reply_to": f"{'a' * 15}@example.com"}, "longer than 14 letters"),
    ({"reply_to": "a+b@example.com"}, "or has a `+`"),
    ({"smtp": SMTP | {"tls": "none"}}, "a password is not sent without TLS"),
    ({"inbound": {"imap": IMAP | {"tls": "none"}}}, "a password is not sent without TLS"),
    ({"inbound": {}}, "exactly one of"),
    ({"inbound": {"imap": IMAP, "lmtp": {"port": 24}}}, "exactly one of"),
    ({"inbound": {"webhook": {}}}, "with shape `raw` it needs a `secret`"),
    ({"inbound": {"webhook": {"shape": "ses"}}}, "it needs the `topic`"),
    ({"inbound": {"webhook": {"shape": "fax", "secret": "env:HOOK"}}}, "option `inbound.webhook.shape`"),
    ({"authserv_id": "mx", "inbound": {"webhook": {"shape": "postmark", "secret": "env:HOOK"}}}, "there is none"),
    ({"inbound": {"imap": IMAP | {"password": "env:NOWHERE"}}}, "`NOWHERE`"),
    ({"smpt": SMTP}, "did you mean `smtp`"),
)
async def test_each_invalid_option_is_named(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await opened(**changes)
    assert expected in caught.value.message
    assert not any(secret in caught.value.message for secret in SECRETS.values())


async def test_smtp_without_tls_is_allowed_on_this_machine() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        assert (await opened(smtp=SMTP | {"tls": "none", "host": host})).smtp.tls == "none"


def test_malformed_webhook_secret_is_refused_at_once() -> None:
    given = {"smtp": {"host": "h"}, "sender": APPROVALS, "inbound": {"webhook": {"secret": "s-three"}}}
    with pytest.raises(ConfigError, match="whsec_"):
        EmailChannel(ChannelContext("email", given, "https://signoff.example", lambda: NOW, b"k"))


@table(
    ("host", "keeps"),
    ("smtp.people.example", True),
    ("email-smtp.eu-west-1.amazonaws.com", False),
    ("SMTP.postmarkapp.com", False),
    ("postmarkapp.com.people.example", True),
)
def test_servers_that_replace_message_ids_are_known(host: str, keeps: bool) -> None:
    assert SmtpOptions(host=host).keeps_ids == keeps
    assert not SmtpOptions(host=host, rewrites_ids=True).keeps_ids
