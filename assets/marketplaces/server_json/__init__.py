"""Records of the official registry (`server.json`) as launch facts."""
