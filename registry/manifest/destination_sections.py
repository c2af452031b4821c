"""The sections of destinations and filters in the manifest."""

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from signoff.contracts.errors import ConfigError
from signoff.formats.record_section import record_fields, record_section
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import read_section
from signoff.registry.import_reference import load_reference
from signoff.registry.manifest.sections import ManifestSection
from signoff.registry.results.destinations import Destination, Observer, named_filter
from signoff.registry.tool_result import Filter

DestinationSection: Final = record_section(Destination)


class DistributionFields(TypedDict):
    """The fields of a catalog that this module reads."""

    destinations: list[Destination]
    observer: Observer | None


def read_distribution(file: YamlFile, top: ManifestSection) -> DistributionFields:
    """Raises `ConfigError` with file and line."""
    observer = None if top.observer is None else _resolve(file, ("observer",), "`observer`", top.observer)
    destinations = [_destination(file, name, data) for name, data in top.destinations.items()]
    return {"destinations": destinations, "observer": observer}


def read_filters(file: YamlFile, place: Place, name: str, given: Mapping[str, str]) -> dict[str, Filter]:
    """Raises `ConfigError` with file and line."""
    return {
        to: _filter(file, (*place, "filters", to), f"`filters.{to}` of tool `{name}`", reference)
        for to, reference in given.items()
    }


def _destination(file: YamlFile, name: str, data: Any) -> Destination:
    place, what = ("destinations", name), f"destination `{name}`"
    given = record_fields(read_section(file, place, DestinationSection, data, what))
    if given["filter"] is not None:
        given["filter"] = _filter(file, (*place, "filter"), f"`filter` of {what}", given["filter"])
    if given["sink"] is not None:
        given["sink"] = _resolve(file, (*place, "sink"), f"`sink` of {what}", given["sink"])
    return Destination(name=name, **given)


def _filter(file: YamlFile, place: Place, what: str, reference: str) -> Filter:
    try:
        return named_filter(reference)
    except ConfigError as error:
        raise file.error(place, f"{what}: {error.message}", **error.context) from error


def _resolve(file: YamlFile, place: Place, what: str, reference: str) -> Any:
    try:
        return load_reference(reference)
    except ConfigError as error:
        raise file.error(place, f"{what}: {error.message}", **error.context) from error
