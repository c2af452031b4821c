"""How a yes comes about: pure rules over frozen shapes, no I/O, no Temporal."""
