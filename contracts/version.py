"""The version of Signoff, which pyproject.toml has as well."""

from typing import Final

VERSION: Final = "0.1.0"
