"""Learns which tools work from judged outcomes: methods by name, and their evaluation in folds."""
