"""Has an agent's dangerous calls approved by a Signoff gateway, and runs what was approved, once."""

from signoff_client.call import Call, NotRun
from signoff_client.gate import VERSION, Gate
from signoff_client.status import CallStatus

__version__ = VERSION
__all__ = ["Call", "CallStatus", "Gate", "NotRun"]
