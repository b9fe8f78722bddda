"""What an executed call proves of a pair: its effect, and that of other arguments."""
