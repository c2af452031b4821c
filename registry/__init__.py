"""What may be called, by whom, under which gates: tools, actors, people and the manifest. Pure."""
