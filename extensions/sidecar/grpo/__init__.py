"""GRPO of the sidecar over rule rewards: rollouts, the guard of groups that fail, the loop."""
