"""The audit log: records chained by hash in each stream, signed checkpoints, a verifier."""
