"""Sends mail by one server, a connection a mail; permanent refusals are told apart from temporary ones."""

from typing import Final

import aiosmtplib

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.mail.letter import Letter
from signoff.channels.mail.options import SmtpOptions

PAUSE_SECONDS: Final = 30.0
"""How long a server is left alone that says that it has trouble itself."""
# The service is closing down (RFC 5321); signing in or TLS is not to be had now (RFC 4954, RFC 3207).
_CLOSING, _TROUBLE = 421, 454
_SHOWN_CHARS: Final = 200


async def send(options: SmtpOptions, letter: Letter, helo: str) -> str:
    """Hands a mail in; returns the server's answer. Raises `NotDelivered`."""
    try:
        async with _client(options, helo) as client:
            _, response = await client.sendmail(letter.sender, [letter.to], letter.content)
    except aiosmtplib.SMTPRecipientsRefused as error:
        refused = error.recipients[0]
        raise _refuse(refused.code, refused.message) from None
    except aiosmtplib.SMTPAuthenticationError as error:
        # Caught apart from the other codes, of which 535 would be final.
        # Nothing is wrong with this mail, and the password may be put right.
        raise NotDelivered(
            "the mail server does not let us sign in: check `smtp.user` and `smtp.password`",
            code=str(error.code),
            again=True,
            after=PAUSE_SECONDS,
        ) from None
    except aiosmtplib.SMTPResponseException as error:
        raise _refuse(error.code, error.message) from None
    except (aiosmtplib.SMTPTimeoutError, TimeoutError):
        # It may have been taken all the same; sent again it has the same id.
        raise NotDelivered("the mail server did not answer in time", code="timeout", again=True) from None
    except (aiosmtplib.SMTPException, OSError) as error:
        why = type(error).__name__
        raise NotDelivered(f"the mail server cannot be reached: {why}", code="connection", again=True) from None
    return response[:_SHOWN_CHARS]


async def knock(options: SmtpOptions, helo: str) -> str:
    """Connects and signs in, and sends nothing; returns the problem, or ""."""
    try:
        async with _client(options, helo) as client:
            await client.noop()
    except (aiosmtplib.SMTPException, OSError) as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0][:_SHOWN_CHARS]
    return ""


def _client(options: SmtpOptions, helo: str) -> aiosmtplib.SMTP:
    return aiosmtplib.SMTP(
        hostname=options.host,
        port=options.port,
        username=options.user or None,
        password=options.password if options.user else None,
        local_hostname=helo,
        timeout=options.timeout_seconds,
        use_tls=options.tls == "tls",
        start_tls=options.tls == "starttls",
    )


def _refuse(code: int, response: str) -> NotDelivered:
    words = " ".join(response.split())[:_SHOWN_CHARS]
    if code in (_CLOSING, _TROUBLE):
        message = f"the mail server has trouble itself: {code} {words}"
        return NotDelivered(message, code=str(code), again=True, after=PAUSE_SECONDS)
    return NotDelivered(f"the mail server refused: {code} {words}", code=str(code), again=code < 500)
