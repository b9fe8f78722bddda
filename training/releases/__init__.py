"""Champions, promotion, releases and rollback."""
