"""Where the checkout lies, and development data beside it (absent from a user's clone)."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
