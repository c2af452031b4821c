"""Makes a release: `make release` checks that it may be made, builds it, tries it and says what is in it."""
