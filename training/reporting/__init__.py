"""The report asset and its plots."""
