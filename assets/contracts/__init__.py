"""Tool contracts: canonical form, schema, history, findings, match and repair."""
