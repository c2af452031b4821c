"""Activities: the model, the gates, the tools, the directory of people, and all other I/O."""
