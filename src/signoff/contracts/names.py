"""Wire names for Temporal, names of settings, and the version."""

from typing import Final

VERSION: Final = "0.1.0"
"""The version of Signoff, as in pyproject.toml."""

ENGINE: Final = 1
"""Number stamped into a turn at its start. Workers with lower numbers leave the turn to a newer worker."""

# Histories and running turns hold all of these: after a change, every waiting turn would lack its handler.
ACTOR_TURN: Final = "ActorTurn"
SESSION: Final = "Session"
HANDLER_RUN: Final = "HandlerRun"

MODEL: Final = "signoff.model"
GATE: Final = "signoff.gate"
OUTCOME: Final = "signoff.outcome"
RECORD: Final = "signoff.record"
ANSWERS: Final = "signoff.answers"
REPLY: Final = "signoff.reply"
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

# Each namespace registers these in plain text: anyone with access to Temporal's UI reads their values.
SA_STATE: Final = "SignoffState"
SA_ACTOR: Final = "SignoffActor"
SA_TENANT: Final = "SignoffTenant"
SA_TOOL: Final = "SignoffTool"

# The turn's worker provides these. No history holds them.
DETAIL_CARD: Final = "signoff.detail_card"
DETAIL_LINK: Final = "signoff.detail_link"

MEMO_INPUT_DIGEST: Final = "signoff_input_digest"
MEMO_TITLE: Final = "signoff_title"
MEMO_REQUESTER: Final = "signoff_requester"
MEMO_STORE: Final = "signoff_store"

RESPOND: Final = "respond"
"""The reserved tool for ending a turn. Never registered, never listed."""

OFFLINE_MODEL: Final = "offline"
"""The built-in model for first trials: it reads each message as a command line."""

READ_REST: Final = "read_rest"
"""The framework's own tool for reading on in long results, for actors that declare it."""

COLLECT: Final = "collect"
"""The framework's own tool for saving the data that a step of a route collects."""

PEER: Final = "peer"
"""The channel of other agents' turns, and the scope of their tokens.

On this channel, only `peer_exposed` tools exist.
"""

SUBSCRIPTION: Final = "subscription"
"""The channel of turns that an event starts, and the beginning of their requester's id, before a colon."""

DEFAULT_TENANT: Final = "main"
DEFAULT_ASKER: Final = "guest"
"""The development profile's default requester."""
DEFAULT_DECIDER: Final = "approver"
"""The development profile's default approver."""
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
    "email_sign_in",
    "calendar_networks",
    "calendar_words",
    "plugins",
    "store_listen_url",
)  # fmt: skip
"""The names of all settings, for code that reads variables without loading settings."""
PLUGIN_NAMES: Final = ("a2a", "aap", "apprise", "authzen", "hooks", "mcp", "teams", "telegram", "twilio")
"""Signoff's own plugins, all loaded by default."""
SETTINGS_FILE: Final = "signoff.toml"
DEFAULT_STATE_DIR: Final = ".signoff"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8300
TOKEN_VARIABLE: Final = "SIGNOFF_TOKEN"
"""The client's source of a personal token."""
INSTALLATION_HEADER: Final = "signoff-installation"
"""Names the intended installation for a client without an address."""
TERMINAL_AGENT: Final = "signoff-cli"
"""The `User-Agent` of terminal commands."""
RUNNING_FILE: Final = "running.json"
"""In the state folder: the parameters of a running `signoff dev`, for other terminals in the same folder."""
