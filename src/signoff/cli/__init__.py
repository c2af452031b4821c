"""The `signoff` command: one module per group of commands, imported on use."""
