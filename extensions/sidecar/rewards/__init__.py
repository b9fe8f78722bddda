"""Rule rewards: what one completion is worth as the revision of a draft call. Pure; no torch."""
