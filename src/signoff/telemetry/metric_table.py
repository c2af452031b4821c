"""Names every metric of Signoff: its kind, its labels, and its meaning.

No label is an id, an address or an argument. Labels with external values have few of them: see `LABEL_SETS`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

MetricKind = Literal["counter", "histogram", "gauge", "gauge_histogram", "info"]
LABEL_SETS: Final = 1_000
"""Maximum label sets of one metric. Further ones are counted under `OTHER`."""
TENANTS: Final = 50
"""Tenants with their own series. Further ones share one."""
OTHER: Final = "_other"
"""The label value of all others. No tenant, tool or channel has this name."""
SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
AGES: Final = (60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
"""Upper bounds, in seconds, for human response times: from a minute to a week."""


class Metric(NamedTuple):
    """One metric."""

    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets."""


METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        "signoff_build": Metric("info", ("version", "process"), "The version, and the kind of process."),
        "signoff_store_up": Metric("gauge", (), "1 if the store answered last, else 0."),
        "signoff_worker_up": Metric("gauge", (), "Whether a worker polls the task queue; 0 or 1."),
        "signoff_store_failures": Metric("counter", (), "Transactions that the store did not answer."),
        "signoff_backlog_age_seconds": Metric(
            "gauge", (), "How long ago the gauges of waiting requests, frozen tenants and queues were measured."
        ),
        "signoff_waiting_requests": Metric("gauge", ("tenant",), "Requests that wait for people."),
        "signoff_waiting_requests_oldest_age_seconds": Metric(
            "gauge", ("tenant",), "For how long the oldest of them has waited."
        ),
        "signoff_waiting_requests_age_seconds": Metric(
            "gauge_histogram", (), "For how long they have waited, all tenants together.", AGES
        ),
        "signoff_frozen_tenants": Metric("gauge", (), "Frozen tenants."),
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
            "Outcomes of proposed calls: `asked`, `allowed` by a rule, `remembered`, or the code of the result.",
        ),
        "signoff_decisions": Metric(
            "counter",
            ("channel", "verdict", "outcome"),
            "Incoming answers: `accepted`, `counted`, `pending`, or the code of the refusal.",
        ),
        "signoff_decision_wait_seconds": Metric(
            "histogram", ("verdict",), "From the question to the answer that settled it.", AGES
        ),
        "signoff_request_deadlines": Metric(
            "counter",
            ("event",),
            "Deadline events of requests: `remind`, `escalate`, `deadline` (extended), `expired`.",
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
            "Events of cards: `sent`, `reminded`, `failed`, `closed`, `not_closed`.",
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
"""Metrics by name. A counter's series have the suffix `_total`, an info's `_info`."""
