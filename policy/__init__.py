"""Who must say yes: CEL policies judged by two engines that must agree before a human is skipped."""
