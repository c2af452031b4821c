"""Reads what settings and manifest of an installation name: its people, and what reads its secrets."""

from signoff.contracts.errors import ConfigError
from signoff.keys.secrets import SecretProvider, source_of
from signoff.people.directory import DevelopmentDirectory, Directory, declared_people
from signoff.people.people_file import FileDirectory
from signoff.registry.catalog import Catalog
from signoff.registry.import_reference import load_reference
from signoff.settings import Settings


def provider_of_secrets(settings: Settings) -> SecretProvider:
    """What reads secrets here, also from the source that the settings name. Raises `ConfigError`."""
    if not settings.secrets:
        return SecretProvider()
    try:
        return SecretProvider(source_of(load_reference(settings.secrets), settings.secrets))
    except ConfigError as error:
        raise ConfigError(f"`secrets`: {error.message}", field="secrets", value=settings.secrets) from None


def people_of(settings: Settings, catalog: Catalog) -> Directory:
    """Who may ask and decide: the file named in the settings, else the manifest's people. Raises `ConfigError`.

    The built-in people are added in the development profile only.
    """
    declared = declared_people(catalog.people) if settings.people is None else FileDirectory(settings.people)
    return DevelopmentDirectory(declared) if settings.profile == "development" else declared
