"""Names on the wire that Temporal knows (types, messages, search attributes), those of settings, and the version."""

from typing import Final

VERSION: Final = "0.1.0"
"""The version of Signoff, which pyproject.toml has as well."""

ENGINE: Final = 1
"""Number stamped into a turn at its start; a worker that knows only lower ones leaves the turn to a newer worker."""

# Histories and running turns hold all of these: a name that changes leaves every turn that waits without its handler.
ACTOR_TURN: Final = "ActorTurn"
SESSION: Final = "Session"
HANDLER_RUN: Final = "HandlerRun"

MODEL: Final = "signoff.model"
GATE: Final = "signoff.gate"
IDENTIFY: Final = "signoff.identify"
OUTCOME: Final = "signoff.outcome"
RECORD: Final = "signoff.record"
ANSWERS: Final = "signoff.answers"
EVENT: Final = "signoff.event"

DECIDE: Final = "decide"
CANCEL: Final = "cancel"
APPROVAL_RESPONSE: Final = "approval_response"
PENDING_APPROVALS: Final = "pending_approvals"
RECEIPT: Final = "receipt"
TRANSCRIPT: Final = "transcript"
SAY: Final = "say"
INJECT: Final = "inject"
CALL_STATE: Final = "call_state"
AWAIT_CALL: Final = "await_call"
USE_CALL: Final = "use_call"
REPORT_CALL: Final = "call_reported"
ATTEND_CALL: Final = "attend_call"
TURN_WAITS: Final = "turn_waits"
TURN_ENDED: Final = "turn_ended"
STATE: Final = "state"

# Registered in each namespace, and plain text there: whoever sees Temporal's UI reads their values.
SA_STATE: Final = "SignoffState"
SA_ACTOR: Final = "SignoffActor"
SA_TENANT: Final = "SignoffTenant"
SA_TOOL: Final = "SignoffTool"

# Given to turns by the worker that runs them, never written to a history.
DETAIL_CARD: Final = "signoff.detail_card"
DETAIL_LINK: Final = "signoff.detail_link"

MEMO_INPUT_DIGEST: Final = "signoff_input_digest"
MEMO_TITLE: Final = "signoff_title"
MEMO_REQUESTER: Final = "signoff_requester"
MEMO_STORE: Final = "signoff_store"

RESPOND: Final = "respond"
"""The reserved tool with which a model ends its turn; never registered, never listed (B46)."""

OFFLINE_MODEL: Final = "offline"
"""The built-in model for first tries: it takes each message as a command line."""

READ_REST: Final = "read_rest"
"""The framework's own tool with which an actor that declares it reads on in long results."""

COLLECT: Final = "collect"
"""The framework's own tool with which a model keeps the data that a step of a route collects."""

PEER: Final = "peer"
"""The channel of other agents' turns, in which a tool that is not `peer_exposed` does not exist; and the scope of
their tokens.
"""

SUBSCRIPTION: Final = "subscription"
"""The channel of turns that an event starts, and the beginning of their requester's id, before a colon."""

DEFAULT_TENANT: Final = "main"
DEFAULT_ASKER: Final = "guest"
"""Whom the development profile takes for who asks, where nobody is named."""
DEFAULT_DECIDER: Final = "approver"
"""Whom it takes for who decides."""
DEFAULT_TASK_QUEUE: Final = "signoff"

ENV_PREFIX: Final = "SIGNOFF_"
SETTING_NAMES: Final = (
    "profile", "app", "manifest", "state_dir", "store_url", "task_queue", "model", "host", "port", "public_url",
    "people", "signing_keys", "public_keys", "secrets", "oidc_issuer", "oidc_client_id", "oidc_client_secret",
    "oidc_groups_claim", "oidc_roles", "oidc_mfa_acr", "oidc_days", "retention", "temporal_port", "ui_port",
    "temporal_ui", "temporal_binary", "durable", "event_days", "result_chars", "encryption", "encryption_keys",
    "codec_port", "codec_url", "trace", "log", "otel", "metrics_port", "metrics_host",
    "oidc_tenant_claim", "oidc_tenants", "deployment", "build_id", "versioning", "tenant_limits",
    "raw_answers",
    "unsafe_open",
    "words_hold",
    "plugins",
)  # fmt: skip
"""Of every setting, for what looks at variables without loading settings."""
PLUGIN_NAMES: Final = ("a2a", "aap", "apprise", "authzen", "hooks", "mcp", "telegram", "twilio")
"""Signoff's own plugins, all of which are loaded by default."""
SETTINGS_FILE: Final = "signoff.toml"
DEFAULT_STATE_DIR: Final = ".signoff"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8300
TOKEN_VARIABLE: Final = "SIGNOFF_TOKEN"
"""Where the client finds a personal token."""
INSTALLATION_HEADER: Final = "signoff-installation"
"""Names the installation that a client without an address means."""
TERMINAL_AGENT: Final = "signoff-cli"
"""What the commands of a terminal call themselves in `User-Agent`."""
RUNNING_FILE: Final = "running.json"
"""In the state folder: what `signoff dev` runs with, for programs in other terminals of the same folder."""
