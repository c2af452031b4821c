"""A reducer for the results of the desk."""

import json

from signoff import ToolFailure, ToolResult
from signoff.tools import ReducerInput, Result


def cheapest(result: Result, given: ReducerInput) -> Result:
    """Return the first three journeys of a search."""
    return result if isinstance(result, ToolFailure) else ToolResult(json.dumps(json.loads(str(result.value))[:3]))
