"""The page of outcomes: what calls that really ran say over time, and what was learnt from them."""
