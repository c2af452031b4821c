"""The codec server: decrypts Temporal's payloads for people who may read the audit log."""
