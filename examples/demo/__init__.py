"""Stories, played unattended on a server of their own and checked at every step."""
