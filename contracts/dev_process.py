"""What `signoff dev` runs with, written down for programs in other terminals of the same folder."""

from signoff.contracts.frozen_model import FrozenModel


class DevProcess(FrozenModel):
    """One running `signoff dev`."""

    pid: int
    """Its process; a file whose process is gone counts for nothing."""
    address: str
    """Temporal's server, `host:port`."""
    namespace: str
    task_queue: str
    manifest: str
    """The manifest's absolute path."""
    url: str
    """Its gateway."""
