"""Role of a small model that revises calls which the repair ladder leaves. May import the core
alone."""
