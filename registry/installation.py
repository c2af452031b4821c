"""Loads an installation from settings and manifest."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from signoff import policypool
from signoff.contracts.completion import Driver
from signoff.contracts.errors import ConfigError
from signoff.keys.secrets import SecretProvider, source_of
from signoff.people.directory import DevelopmentDirectory, Directory, declared_people
from signoff.people.people_file import FileDirectory
from signoff.registry.capabilities import Backend
from signoff.registry.catalog import Catalog
from signoff.registry.import_reference import load_reference
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.program.program import Program
from signoff.registry.program.program_loader import load_program
from signoff.settings import Settings, login_roles


@dataclass(frozen=True)
class Installation:
    """The parts of a worker and a gateway."""

    settings: Settings
    catalog: Catalog
    people: Directory
    secrets: SecretProvider
    backends: Mapping[str, Backend] = field(default_factory=dict)
    version: str | None = None
    """The program's own version, "" for none. `None` for a manifest."""
    name: str = ""
    driver: Driver | None = None
    """In tests, answers for every model."""

    @property
    def source(self) -> str:
        return self.settings.app or str(self.settings.manifest)

    @property
    def has_people(self) -> bool:
        """Whether anyone can use it: an active person of the directory, or a person with a login's role."""
        return any(person.active for person in self.people.all()) or bool(login_roles(self.settings))


def load_installation(
    settings: Settings, people: Directory | None = None, program: Program | None = None
) -> Installation:
    """Read the installation of these settings, with `people` and `program` instead of theirs if given.

    Raises `ConfigError`.
    """
    policypool.install()
    if program is None and settings.app:
        program = load_program(settings.app)
    catalog = _load_catalog(settings) if program is None else program.build()
    # After the manifest, which makes modules importable.
    known = people_of(settings, catalog) if people is None else people
    secrets = provider_of_secrets(settings)
    if program is None:
        return Installation(settings, catalog, known, secrets)
    return Installation(settings, catalog, known, secrets, program.backends, program.version, program.name)


def _load_catalog(settings: Settings) -> Catalog:
    if not settings.manifest.exists():
        named = "manifest" in settings.model_fields_set
        remedy = "check the path" if named else "name a program, `MODULE:APP`, or a manifest"
        raise ConfigError(f"there is no manifest `{settings.manifest}` here: {remedy}", field="manifest")
    return load_manifest(settings.manifest)


def provider_of_secrets(settings: Settings) -> SecretProvider:
    """Raises `ConfigError`."""
    if not settings.secrets:
        return SecretProvider()
    try:
        return SecretProvider(source_of(load_reference(settings.secrets), settings.secrets))
    except ConfigError as error:
        raise ConfigError(f"`secrets`: {error.message}", field="secrets", value=settings.secrets) from None


def people_of(settings: Settings, catalog: Catalog) -> Directory:
    """Return the people of the file in the settings, else the manifest's.

    Raises `ConfigError`. The built-in people are added in the development profile only.
    """
    declared = declared_people(catalog.people) if settings.people is None else FileDirectory(settings.people)
    return DevelopmentDirectory(declared) if settings.profile == "development" else declared
