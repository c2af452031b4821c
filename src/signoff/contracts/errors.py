"""Three kinds of error and no other.

    SignoffError
    ├── ConfigError          the developer's: at build or start; names the thing and the remedy
    │   ├── SecretMissing    a secret is not where its reference leads
    │   └── ModelNotSetUp    the key or the extra of a model is missing
    ├── Refused              soft: somebody may not, or it is too late
    │   ├── InDoubt          it is not known whether a side effect happened
    │   └── BadRequest       a request that cannot be understood
    └── Unavailable          the world's: retried where that makes sense
        ├── ServerUnavailable
        ├── StoreUnavailable
        └── ModelUnavailable

Temporal error types are these class names.
"""


class SignoffError(Exception):
    """The root. `message` is one sentence for the person who reads it, without a final period.

    It is English unless `context` has its `language`. A `remark` in `context` says the same in every language.
    """

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.context = context


class ConfigError(SignoffError):
    """A mistake in code, manifest or settings, found at build or start.

    `context` carries what a tool needs to point at it: `tool_name`, `field`, `value`, `file`, `line`.
    """


class RegistrationError(ConfigError):
    """A tool's declaration is wrong; `context` has `tool_name`, `field` and `value` (B18)."""


class SecretMissing(ConfigError):
    """There is no secret where a reference leads; `message` goes on after "needs", and never holds a secret."""


class ModelNotSetUp(ConfigError):
    """The provider's key or the extra of a known provider's model is missing; `lack` says which, for a "because"."""

    def __init__(self, message: str, lack: str, **context: object) -> None:
        super().__init__(message, **context)
        self.lack = lack


class Refused(SignoffError):
    """Not allowed, stale, or already settled; `code` is a receipt or call code."""

    def __init__(self, message: str, code: str = "refused", **context: object) -> None:
        super().__init__(message, **context)
        self.code = code


class InDoubt(Refused):
    """A side effect was begun and its outcome was never recorded; it must not be begun again."""

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message, code="in_doubt", **context)


class Conflict(Refused):
    """The same id was started with other input."""

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message, code="conflict", **context)


class NotFound(Refused):
    """No such turn, approval, actor or tool; the message offers the nearest names."""

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message, code="unknown", **context)


class BadRequest(Refused):
    """Raised for a request that cannot be understood; answered 422, or the `status` given.

    `after` is in how many seconds the same request may be taken, where that is known.
    """

    def __init__(
        self, message: str, *, status: int = 422, code: str = "malformed", after: int = 0, **context: object
    ) -> None:
        super().__init__(message, code=code, **context)
        self.status = status
        self.after = after


class Unavailable(SignoffError):
    """Something outside did not answer; trying again later may work."""


class ServerUnavailable(Unavailable):
    """No Temporal server, or not one that can be used."""


class StoreUnavailable(Unavailable):
    """The database behind tickets and blobs did not answer."""


class ModelUnavailable(Unavailable):
    """The model's provider did not answer, or is out of capacity (429, 5xx)."""


class ModelRefused(SignoffError):
    """The model's provider refused the request for good (4xx); the turn ends with `model_refused`."""
