"""Reads what settings and manifest of an installation name: its tools, its people, and what reads its secrets."""

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
    """What a worker and a gateway are built of."""

    settings: Settings
    catalog: Catalog
    people: Directory
    secrets: SecretProvider
    """Reads what manifest and settings refer to."""
    backends: Mapping[str, Backend] = field(default_factory=dict)
    """The program's own backends of capabilities, by kind."""
    version: str | None = None
    """The program's own version, "" for none; None of a manifest."""
    name: str = ""
    """The program's name for people."""
    driver: Driver | None = None
    """Answers for every model, in a test."""

    @property
    def source(self) -> str:
        """The program or the manifest, as messages name it."""
        return self.settings.app or str(self.settings.manifest)

    @property
    def has_people(self) -> bool:
        """Whether anybody could use it: an active person of the directory, or whom a login vouches for."""
        return any(person.active for person in self.people.all()) or bool(login_roles(self.settings))


def load_installation(
    settings: Settings, people: Directory | None = None, program: Program | None = None
) -> Installation:
    """Read the installation of these settings, with `people` and `program` in place of theirs if given.

    Raises `ConfigError`.
    """
    policypool.install()
    if program is None and settings.app:
        program = load_program(settings.app)
    catalog = _load_catalog(settings) if program is None else program.build()
    # After the manifest, which says where modules are.
    # Not by its truth: a directory of one's own may be empty at first, and nobody else's people may stand in for it.
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
    """Makes the provider of secrets here, with the source that the settings name. Raises `ConfigError`."""
    if not settings.secrets:
        return SecretProvider()
    try:
        return SecretProvider(source_of(load_reference(settings.secrets), settings.secrets))
    except ConfigError as error:
        raise ConfigError(f"`secrets`: {error.message}", field="secrets", value=settings.secrets) from None


def people_of(settings: Settings, catalog: Catalog) -> Directory:
    """Returns the directory of people: the file named in the settings, else the manifest's people.

    Raises `ConfigError`.

    The built-in people are added in the development profile only.
    """
    declared = declared_people(catalog.people) if settings.people is None else FileDirectory(settings.people)
    return DevelopmentDirectory(declared) if settings.profile == "development" else declared
