"""What an operator reads of activities: the ids in their logs, and their spans."""
