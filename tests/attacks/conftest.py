from collections.abc import AsyncIterator

import pytest
from attack_site import MANIFEST, AttackSite, StoreUrls, running_site
from impostor import Impostor, impostor_of
from provider_login import provider
from store_fixtures import postgres_server
from store_roles import RoleUrls, given_roles, made_roles
from stranger import channel_settings

from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server

__all__ = ["postgres_server", "provider"]


@pytest.fixture(scope="session")
async def attacked_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerHandle]:
    file = tmp_path_factory.mktemp("temporal") / "temporal.db"
    async with run_server(ServerOptions(file, port=free_port(), ui_port=None)) as handle:
        yield handle


@pytest.fixture(scope="session")
async def site(attacked_server: ServerHandle, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackSite]:
    """Over SQLite, worker and gateway share the store's rights."""
    async with running_site(tmp_path_factory.mktemp("site"), attacked_server) as running:
        yield running


@pytest.fixture(scope="session")
async def role_urls(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> RoleUrls:
    urls = await made_roles(postgres_server)
    await given_roles(urls, tmp_path_factory.mktemp("roles"))
    return urls


@pytest.fixture(scope="session")
async def site_of_roles(
    attacked_server: ServerHandle, role_urls: RoleUrls, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AttackSite]:
    stores = StoreUrls(role_urls.worker, role_urls.gateway)
    async with running_site(tmp_path_factory.mktemp("site-of-roles"), attacked_server, stores) as running:
        yield running


@pytest.fixture(scope="session")
async def impostor(site: AttackSite) -> AsyncIterator[Impostor]:
    async with impostor_of(site.client, site.queue, MANIFEST, site.stores.gateway) as found:
        yield found


@pytest.fixture(scope="session")
async def channel_site(
    attacked_server: ServerHandle, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AttackSite]:
    settings = channel_settings(tmp_path_factory.mktemp("channel-desk"))
    async with running_site(tmp_path_factory.mktemp("channel-site"), attacked_server, **settings) as running:
        yield running
