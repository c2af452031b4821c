import dataclasses
import uuid
from collections.abc import AsyncIterator

import pytest
from call_rig import call_catalog, call_rig, call_token, refund_tool, with_callbacks
from client_rig import ClientRig
from gateway_login import locked_rig
from temporal_rig import Workers
from temporalio.client import Client
from turn_fixtures import Ledger

from signoff.gateway.app import build_app
from signoff.gateway.events.event_sender import send_events
from signoff.gateway.events.event_task import record_progress
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Callbacks
from signoff.registry.catalog import Catalog
from signoff.store.store import open_store


def client_catalog(ledger: Ledger) -> Catalog:
    fleeting = refund_tool(ApprovalPolicy(auto_approve_if="true", grant_ttl=1.0), name="fleeting")
    return call_catalog(ledger, fleeting, refund_tool(ApprovalPolicy(allow_remember=True), name="alike"))


@pytest.fixture(scope="session")
async def rig(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientRig]:
    folder = tmp_path_factory.mktemp("clients")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        call_rig(client, store, f"clients-{uuid.uuid4().hex[:12]}", catalog_of_ledger=client_catalog) as agent,
    ):
        token = await call_token(agent.rig, "coder")
        rig = ClientRig(agent, locked_rig(agent.rig).app, token)
        async with rig.serve() as url:
            rig.url = url
            yield rig


@pytest.fixture(scope="session")
async def signals(rig: ClientRig) -> AsyncIterator[ClientRig]:
    callbacks = Callbacks(workflows=("gated-*",))
    deps = with_callbacks(locked_rig(rig.agent.rig).deps, callbacks)
    own = dataclasses.replace(rig, app=build_app(deps), url="")
    async with own.serve() as url, record_progress(deps), send_events(deps):
        own.url = url
        yield own


@pytest.fixture
def workers(signals: ClientRig, client: Client) -> Workers:
    return Workers(signals, client)
