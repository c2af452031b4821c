"""The rules of approvals: pure functions over frozen records, no I/O, no Temporal."""
