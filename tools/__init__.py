"""What works on the repository and is not installed: benchmarks, mutants, the release."""
