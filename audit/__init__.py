"""What happened, for good: records chained by hash in each stream, signed checkpoints over all, and their verifier."""
