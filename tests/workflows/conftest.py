from datetime import timedelta
from functools import partial

import pytest
from store_fixtures import postgres_server, postgres_url

from signoff import worker
from signoff.activities import model_activity, run_once
from signoff.activities.heartbeat import send_heartbeats

__all__ = ["postgres_server", "postgres_url"]


@pytest.fixture
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation reaches an activity with its next heartbeat."""
    options, interval = worker.worker_options, timedelta(seconds=0.5)
    for module in (model_activity, run_once):
        monkeypatch.setattr(module, "send_heartbeats", partial(send_heartbeats, 0.5))
    given = {"max_heartbeat_throttle_interval": interval, "default_heartbeat_throttle_interval": interval}
    monkeypatch.setattr(worker, "worker_options", lambda cached: {**options(cached), **given})
