"""Makes a release: `make release` checks that it is ready, builds it, tries it and lists its components."""
