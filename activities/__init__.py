"""Where the world is touched: the model, the gates, the tools, the directory of people."""
