"""What the repair ladder gains and harms: flawed drafts, arms, the judgement and its tables."""
