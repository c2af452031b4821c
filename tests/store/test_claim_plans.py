"""Every claim of a queue seeks what it takes, however many rows wait: checked by the plans of its statements."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from signoff.audit.event_deliveries import EventDeliveries
from signoff.formats.tenant_limits import parse_tenant_limits
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import Store
from signoff.testing import a_request

ROWS = 20_000
LIMITS = parse_tenant_limits("deliveries=600/minute")
NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)"
