"""Pages of the sign-in by email."""
