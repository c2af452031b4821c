"""What cards and answers say, one module a language. English has every text; another may lack some."""
