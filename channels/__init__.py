"""Channels: how people are reached, and how they answer, beside the inbox. One module a channel."""
