"""Telemetry of activities: ids in their logs, and spans."""
