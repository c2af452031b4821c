"""Checks the variables `SIGNOFF_*` of this process: one that is misspelt would be passed over in silence."""

import difflib
import os
from typing import Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.names import ENV_PREFIX, SETTING_NAMES, TOKEN_VARIABLE

_KNOWN: Final = (*(ENV_PREFIX + name.upper() for name in SETTING_NAMES), TOKEN_VARIABLE)


def refuse_misspelt_variables() -> None:
    """Raises `ConfigError` for a variable that is nearly the name of a setting, or of the token."""
    for variable in sorted(name.upper() for name in os.environ):
        if not variable.startswith(ENV_PREFIX) or variable in _KNOWN:
            continue
        # Near misses only: others may have variables with this beginning, such as the programs around us.
        if near := difflib.get_close_matches(variable, _KNOWN, n=1, cutoff=0.85):
            raise ConfigError(f"the variable `{variable}` is not known: did you mean `{near[0]}`?", field=variable)
