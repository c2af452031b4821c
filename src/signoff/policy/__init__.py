"""Approval policies: CEL expressions judged by two engines that must agree before nobody is asked."""
