"""Where the ledger's database lies: one SQL for all of it, and what differs between two engines."""
