"""Stories that run unattended on their own server, with a check at every step."""
