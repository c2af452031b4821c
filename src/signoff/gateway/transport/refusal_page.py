"""Answers a browser that opens a page at an address where this gateway serves none."""

from html import escape
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope, Send

from signoff.gateway.languages import language_for
from signoff.texts.catalogue import ENGLISH, has_text, text

# No style sheet, link or image: at a foreign address the gateway serves none of them.
_PAGE: Final = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
</head>
<body>
<h1>{title}</h1>
{words}
</body>
</html>
"""


def wants_page(scope: Scope) -> bool:
    """Return whether a browser asks for a page, and not a client for JSON."""
    return scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")


async def send_refusal_page(scope: Scope, send: Send, status: int, message: str) -> None:
    """Send the refusal in the browser's language, with its English message."""
    language = language_for(Request(scope), "")
    named, why = f"error.{status}", f"error.why.{status}"
    words = [] if language == ENGLISH or not has_text(why) else [f"<p>{escape(text(why, language))}</p>"]
    words.append(f'<p lang="en">{escape(message[:1].upper() + message[1:])}.</p>')
    title = escape(text(named if has_text(named) else "error.title", language))
    page = _PAGE.format(language=language, title=title, words="\n".join(words)).encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(page)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": page})
