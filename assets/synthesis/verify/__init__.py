"""Rules that check a pair before any judge. May import contracts and the lexicon."""
