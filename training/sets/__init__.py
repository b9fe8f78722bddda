"""The training set: split, negatives, leak checks."""
