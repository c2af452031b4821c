"""Public fakes for tests and keyless demonstrations; ordinary adapters, nothing is patched."""
