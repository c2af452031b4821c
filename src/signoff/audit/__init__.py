"""The audit record: records chained by hash in each stream, signed checkpoints over all streams, and their verifier."""
