"""Checks the variables `SIGNOFF_*`: without this, a misspelt one would be ignored silently."""

import difflib
import os
from typing import Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.names import ENV_PREFIX, SETTING_NAMES, TOKEN_VARIABLE

_KNOWN: Final = (*(ENV_PREFIX + name.upper() for name in SETTING_NAMES), TOKEN_VARIABLE)


def refuse_misspelt_variables() -> None:
    """Raise `ConfigError` for a variable whose name is similar to a setting's or the token's."""
    for variable in sorted(name.upper() for name in os.environ):
        if not variable.startswith(ENV_PREFIX) or variable in _KNOWN:
            continue
        # Near misses only: other programs may use variables with this prefix.
        if near := difflib.get_close_matches(variable, _KNOWN, n=1, cutoff=0.85):
            raise ConfigError(f"the variable `{variable}` is not known: did you mean `{near[0]}`?", field=variable)
