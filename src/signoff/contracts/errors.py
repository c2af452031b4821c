"""The three kinds of error.

    SignoffError
    ├── ConfigError          the developer's: at build or start; names the thing and the remedy
    │   ├── SecretMissing    a reference's secret is missing
    │   └── ModelNotSetUp    the key or the extra of a model is missing
    ├── Refused              soft: not allowed, or too late
    │   ├── InDoubt          a side effect's outcome is unknown
    │   └── BadRequest       an invalid request
    └── Unavailable          an external service's: retried if that makes sense
        ├── ServerUnavailable
        ├── StoreUnavailable
        └── ModelUnavailable

Temporal error types are these class names.
"""


class SignoffError(Exception):
    """The root. `message` is one sentence for its reader, without a final period.

    It is English unless `context` has its `language`. A `remark` in `context` is the message for every language.
    """

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.context = context


class ConfigError(SignoffError):
    """A mistake in code, manifest or settings, detected at build or start.

    `context` holds the location for tools: `tool_name`, `field`, `value`, `file`, `line`.
    """


class RegistrationError(ConfigError):
    """A tool's declaration is wrong; `context` has `tool_name`, `field` and `value`."""


class SecretMissing(ConfigError):
    """A reference's secret is missing; `message` continues "needs", and never contains a secret."""


class ModelNotSetUp(ConfigError):
    """The key or the extra of a known provider is missing; `lack` is the reason for a "because"."""

    def __init__(self, message: str, lack: str, **context: object) -> None:
        super().__init__(message, **context)
        self.lack = lack


class Refused(SignoffError):
    """Not allowed, stale or settled; `code` says why. Decisions return a `Receipt` instead.

    `code` is a receipt or call code.
    """

    def __init__(self, message: str, code: str = "refused", **context: object) -> None:
        super().__init__(message, **context)
        self.code = code


class InDoubt(Refused):
    """A side effect may have happened. Raise it in a handler after a lost answer.

    The call's outcome is then unknown, and approvers or the probe decide. A `read_only` or `idempotent` tool is retried
    instead.
    """

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message, code="in_doubt", **context)


class Conflict(Refused):
    """A turn, call or delivery with this id exists, with other content. Choose another id."""

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message, code="conflict", **context)


class NotFound(Refused):
    """No such turn, approval, actor or tool; the message suggests the nearest names."""

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message, code="unknown", **context)


class BadRequest(Refused):
    """An invalid request, as the gateway and plugins raise it. `Client` raises `Refused`.

    `status` is the answer's status, 422 by default. `after` is the number of seconds until the same request may be
    accepted, if known.
    """

    def __init__(
        self, message: str, *, status: int = 422, code: str = "malformed", after: int = 0, **context: object
    ) -> None:
        super().__init__(message, code=code, **context)
        self.status = status
        self.after = after


class Unavailable(SignoffError):
    """An external service did not answer; a later retry may succeed.

    In a handler, raise `ConnectionError` instead. Handlers of `read_only` or `idempotent` tools are not retried after
    this error, but after `ConnectionError`, `TimeoutError` and `InDoubt`.
    """


class ServerUnavailable(Unavailable):
    """No usable Temporal server, worker or gateway answers. The request may be repeated with the same id."""


class StoreUnavailable(Unavailable):
    """The database of tickets and blobs did not answer."""


class ModelUnavailable(Unavailable):
    """The model's provider did not answer, or is out of capacity (429, 5xx)."""


class ModelRefused(SignoffError):
    """The model's provider refused the request permanently (4xx); the turn ends with `model_refused`."""
