"""What was observed of tools, by executions and by clients, and how much each word counts."""
