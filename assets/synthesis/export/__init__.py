"""Exports of accepted pairs in the formats that trainers read, as of any day."""
