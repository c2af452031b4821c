"""The `signoff` command: one module a group of commands, loaded when it is used."""
