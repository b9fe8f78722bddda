"""Redaction, escaping and Markdown for third-party text."""
