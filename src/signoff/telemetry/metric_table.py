"""Names every metric of Signoff's own: its kind, its labels, and what it counts.

No label is an id, an address or an argument. Where a label's values come from outside, there are few of them: see
`LABEL_SETS`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

MetricKind = Literal["counter", "histogram", "gauge", "gauge_histogram", "info"]
LABEL_SETS: Final = 1_000
"""Sets of labels that one metric has at most; what comes after them is counted under `OTHER`."""
TENANTS: Final = 50
"""Tenants that have series of their own; those that come after them share one."""
OTHER: Final = "_other"
"""The label's value for all that have none of their own; no tenant, tool or channel is called so."""
SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
AGES: Final = (60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
"""Upper bounds, in seconds, for what takes as long as people do: from a minute to a week."""


class Metric(NamedTuple):
    """One metric."""

    kind: MetricKind
    """What it is to OpenMetrics."""
    labels: tuple[str, ...]
    """The names of its labels."""
    help: str
    """What it counts or measures."""
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets."""


METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        "signoff_build": Metric("info", ("version", "process"), "The version that runs, and as what."),
        "signoff_store_up": Metric("gauge", (), "Whether the store answered the last time; 0 or 1."),
        "signoff_worker_up": Metric("gauge", (), "Whether a worker polls the task queue; 0 or 1."),
        "signoff_store_failures": Metric("counter", (), "Transactions that the store did not answer."),
        "signoff_waiting_requests": Metric("gauge", ("tenant",), "Requests that wait for people."),
        "signoff_waiting_requests_oldest_age_seconds": Metric(
            "gauge", ("tenant",), "For how long the oldest of them has waited."
        ),
        "signoff_waiting_requests_age_seconds": Metric(
            "gauge_histogram", (), "For how long they have waited, all tenants together.", AGES
        ),
        "signoff_frozen_tenants": Metric("gauge", (), "Tenants of which nothing runs."),
        "signoff_queue_entries": Metric("gauge", ("queue",), "Entries of a queue that are due, or were tried before."),
        "signoff_queue_oldest_age_seconds": Metric("gauge", ("queue",), "For how long the oldest of them has waited."),
        "signoff_turns_started": Metric("counter", ("tenant",), "Turns that began."),
        "signoff_starts_refused": Metric(
            "counter", ("tenant",), "Starts that a tenant's limit refused: turns, messages and late results."
        ),
        "signoff_turns_ended": Metric("counter", ("tenant", "state"), "Turns that ended, by the state they ended in."),
        "signoff_gate_outcomes": Metric(
            "counter",
            ("outcome", "gate"),
            "What became of proposed calls: `asked`, `allowed` by a rule, `remembered`, or the code of the result.",
        ),
        "signoff_decisions": Metric(
            "counter",
            ("channel", "verdict", "outcome"),
            "Answers as they came in: `accepted`, `counted`, `pending`, or the code of the refusal.",
        ),
        "signoff_decision_wait_seconds": Metric(
            "histogram", ("verdict",), "From the question to the answer that settled it.", AGES
        ),
        "signoff_request_deadlines": Metric(
            "counter", ("event",), "What time did to requests: `remind`, `escalate`, `deadline` (put off), `expired`."
        ),
        "signoff_tool_calls": Metric("counter", ("tool", "outcome"), "Calls that ran, by the code of their result."),
        "signoff_tool_call_duration_seconds": Metric("histogram", ("tool",), "How long calls ran.", SECONDS),
        "signoff_model_requests": Metric(
            "counter", ("model", "outcome"), "Requests to models: `ok`, `unavailable`, `refused`, `config`."
        ),
        "signoff_model_request_duration_seconds": Metric("histogram", ("model",), "How long models took.", SECONDS),
        "signoff_model_tokens": Metric("counter", ("model", "direction"), "Tokens: `input`, `output`."),
        "signoff_card_deliveries": Metric(
            "counter",
            ("channel", "event"),
            "What became of cards: `sent`, `reminded`, `failed`, `closed`, `not_closed`.",
        ),
        "signoff_card_attempts_failed": Metric(
            "counter", ("channel", "code"), "Tries that a channel's vendor did not take, by its code."
        ),
        "signoff_event_deliveries": Metric(
            "counter", ("subscription", "outcome"), "Tries to deliver events: `delivered`, `failed`, `given_up`."
        ),
        "signoff_refused_inputs": Metric("counter", ("kind",), "Bad input that was refused."),
    }
)
"""Metrics by name; a counter's series have the suffix `_total`, an info's `_info`."""
