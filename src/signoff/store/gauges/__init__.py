"""Measurements of a store, exposed by a gateway's metrics."""
