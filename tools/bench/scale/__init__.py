"""Measures an installation of the production profile under many waiting turns: processes, as an operator runs them."""
