"""The whole story, played unattended on a server of its own and checked at every step."""
