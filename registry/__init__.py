"""Declares which tools there are, who may call them, and under which gates: tools, actors and the manifest. Pure."""
