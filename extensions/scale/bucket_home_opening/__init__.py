"""The home of the settings, where it lives in a bucket: who fetches it, and who holds it."""
