"""What executions come to: tables, a plot, and the verdicts of rules and judge beside them."""
