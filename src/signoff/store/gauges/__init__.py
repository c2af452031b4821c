"""What is measured of a store, for whoever scrapes a gateway."""
