"""One client for model requests: roles, budgets, rates, retries, the ledger."""
