"""The judge, and the trial that measures it. May import the rules and the offline provider."""
