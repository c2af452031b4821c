"""A server, an installation of the production profile on it, and an impostor who holds a Temporal client alone."""

from collections.abc import AsyncIterator

import pytest
from attack_site import MANIFEST, AttackSite, running_site
from impostor import Impostor, impostor_of
from stranger import channel_settings

from signoff.embedded import ServerHandle, ServerOptions, free_port, run_server


@pytest.fixture(scope="session")
async def attacked_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHandle]:
    """A server on which nothing but what is attacked runs."""
    file = tmp_path_factory.mktemp("temporal") / "temporal.db"
    async with run_server(ServerOptions(file, port=free_port(), ui_port=None)) as handle:
        yield handle


@pytest.fixture(scope="session")
async def site(attacked_server: ServerHandle, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackSite]:
    """An installation over SQLite, where worker and gateway have one role at the store."""
    async with running_site(tmp_path_factory.mktemp("site"), attacked_server) as running:
        yield running


@pytest.fixture(scope="session")
async def impostor(site: AttackSite) -> AsyncIterator[Impostor]:
    """Whoever holds a credential of the namespace."""
    async with impostor_of(site.client, site.queue, MANIFEST) as found:
        yield found


@pytest.fixture(scope="session")
async def channel_site(
    attacked_server: ServerHandle, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AttackSite]:
    """An installation whose gateway has doors for vendors as well."""
    settings = channel_settings(tmp_path_factory.mktemp("channel-desk"))
    async with running_site(tmp_path_factory.mktemp("channel-site"), attacked_server, **settings) as running:
        yield running
