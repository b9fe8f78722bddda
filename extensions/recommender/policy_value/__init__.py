"""What another order of tools would have brought, estimated from explored searches of the log."""
