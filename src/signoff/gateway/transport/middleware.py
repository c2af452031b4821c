"""Refuses requests by host, origin and type, adds security headers, and answers unexpected errors.

The answer to an unexpected error has an id under which the log has the details.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from html import escape
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff.client.address import installation_name
from signoff.contracts.names import INSTALLATION_HEADER
from signoff.contracts.receipt import Receipt
from signoff.contracts.responses import Fault
from signoff.formats.web_address import is_loopback_host
from signoff.gateway.languages import language_for
from signoff.gateway.transport.body_limit import READING, refuse
from signoff.gateway.transport.own_names import OwnNames
from signoff.languages.catalogue import ENGLISH, has_text, text
from signoff.plugins.router import PluginRouter
from signoff.settings import Settings

# No style sheet, link or image: at a foreign address the gateway serves none.
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

_log = logging.getLogger(__name__)

Answer = Callable[[Request, Fault, int], Awaitable[Response]]

API: Final = "/v1/"
RETRY_SECONDS: Final = "signoff.retry_seconds"
"""Key in a request's scope for the seconds of the header `Retry-After`."""
STATIC: Final = "/static/"
# No inline script or style: a model's text that escapes the escaping cannot run.
_POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_NOT_LOCAL: Final = (
    "the development profile has no sign-in, so it answers only clients on its own machine; see the setting "
    "`unsafe_open`"
)
_HEADERS: Final = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    # The address of an approval link is secret: no other site may get it as a referrer.
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)


class RequestGuard:
    """Refuses requests before all other code, and adds the security headers to every answer.

    A foreign `Host` is refused because an attacker can rebind a name to the loopback address. Any web page could then
    use this gateway as its own. Pages of `origins` may send requests, as Temporal's UI does to the codec server. Routes
    of `plugins` take only JSON, like the API.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        origins: Collection[str] = (),
        plugins: Sequence[PluginRouter] = (),
    ) -> None:
        self._app = app
        self._plugins = plugins
        # People paste these addresses into other programs, which add slashes or join paths to them.
        self._typed = tuple(f"{each.prefix}/" for each in plugins if each.is_typed)
        self._names = OwnNames(settings.host, settings.public_url, origins)
        self._public = settings.public_url
        self._state_dir = settings.state_dir.resolve()
        # In production, the token identifies the gateway.
        self._installation = installation_name(self._state_dir) if settings.profile == "development" else ""
        self._this_machine_alone = settings.profile == "development" and not settings.unsafe_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Only lifespan gets here: `serve` runs uvicorn without WebSockets.
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "path": _without_extra_slashes(scope["path"], self._typed)}
        # First, so that refusals carry the headers too.
        sealed = _seal(send, scope, secure=self._public.startswith("https:"))
        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        if self._this_machine_alone and not _is_on_this_machine(scope):
            refusal = 403, "not_local", _NOT_LOCAL
        if scope.get("root_path"):
            # Below a path, the API's addresses would not start like the checked ones, and links would not work.
            refusal = 421, "below_a_path", "this gateway answers only at the root of an address, not below a path"
        if refusal is not None and _wants_page(scope):
            await _send_refusal_page(scope, sealed, refusal[0], refusal[2])
            return
        if refusal is not None:
            await refuse(sealed, *refusal)
            return
        await self._app(scope, receive, sealed)

    def _refusal(self, method: str, path: str, headers: Headers) -> tuple[int, str, str] | None:
        if not self._names.has_host(headers):
            return 421, "foreign_host", "this gateway does not answer under that name; see the setting `public_url`"
        meant = headers.get(INSTALLATION_HEADER, "")
        if meant and self._installation and meant != self._installation:
            return 421, "other_installation", self._other_project()
        if "transfer-encoding" in headers:
            # h11 parses each chunk in Python: a stranger's small chunks blocked the gateway for seconds (`server.py`).
            return 411, "length", "send the body's length in `Content-Length`, without `Transfer-Encoding`"
        if method in READING:
            if headers.get("content-length", "0") != "0":
                return 400, "body", "a request that changes nothing has no body"
            return None
        # The gateway's own forms send `Origin: null` because of their referrer policy. The form's token decides then.
        if not self._names.is_own_page(headers, null_passes=not path.startswith(API)):
            return 403, "cross_site", "requests from other sites are refused"
        # Other sites' pages can send forms and text directly. JSON needs a CORS preflight, which fails here.
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        plugin = next((each for each in self._plugins if each.has_path(path)), None)
        has_body = plugin is None or headers.get("content-length", "0") != "0" or not plugin.takes_nothing(method, path)
        takes_json = plugin is not None or path.startswith(API)
        if takes_json and has_body and kind != "application/json":
            return 415, "content_type", "send JSON, with the header `Content-Type: application/json`"
        return None

    def _other_project(self) -> str:
        return (
            f"the gateway at {self._public} belongs to the project with its state in `{self._state_dir}`, not to this "
            "directory: run the command in that project's directory, run `signoff dev` here with another SIGNOFF_PORT, "
            f"or set SIGNOFF_PUBLIC_URL={self._public} to use that project from here"
        )


def _without_extra_slashes(path: str, typed: Collection[str]) -> str:
    for prefix in typed:
        if path.startswith(prefix):
            return prefix + "/".join(filter(None, path.removeprefix(prefix).split("/")))
    return path


def _is_on_this_machine(scope: Scope) -> bool:
    # `None` if the server listens at a file of this machine.
    peer = scope.get("client")
    return peer is None or is_loopback_host(peer[0])


def _seal(send: Send, scope: Scope, *, secure: bool) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS:
                headers[name] = value
            # Browsers ignore it over http (RFC 6797, 8.1), which development machines use.
            if secure:
                headers["strict-transport-security"] = "max-age=31536000"
            if not scope["path"].startswith(STATIC):
                headers.setdefault("cache-control", "no-store")
            if RETRY_SECONDS in scope:
                headers.setdefault("retry-after", str(scope[RETRY_SECONDS]))
        await send(message)

    return sending


def unexpected_receipt(approval_id: str, error: Exception) -> Receipt:
    """The decision may have counted, so the receipt is no refusal."""
    name = _log_failure(f"an answer to {approval_id!r}", error)
    message = (
        f"an unexpected error occurred, and the decision may have counted; the gateway's log has it under the id {name}"
    )
    return Receipt(status="pending", approval_id=approval_id, message=message)


def _log_failure(what: str, error: Exception) -> str:
    name = secrets.token_hex(4)
    _log.error("%s failed, id %s (%s)", what, name, type(error).__name__)
    _log.debug("id %s", name, exc_info=error)
    return name


class ErrorMiddleware:
    """Handles errors that no handler caught. The traceback may hold arguments: it is logged at level debug."""

    def __init__(self, app: ASGIApp, answer: Answer) -> None:
        self._app = app
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            # The client is gone, and strangers' disconnects must not fill the log.
            return
        except Exception as error:
            # Log the path as a Python literal: a `%0A` in it would otherwise forge a line of the log.
            name = _log_failure(f"{scope['method']} {scope['path']!r}", error)
            if not begun:
                words = f"an unexpected error occurred; the gateway's log has it under the id {name}"
                response = await self._answer(Request(scope, receive), Fault(code="internal", message=words), 500)
                await response(scope, receive, send)


def _wants_page(scope: Scope) -> bool:
    """Return whether a browser asks for a page, not a client for JSON."""
    return scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")


async def _send_refusal_page(scope: Scope, send: Send, status: int, message: str) -> None:
    """Uses the browser's language, with the English message."""
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
