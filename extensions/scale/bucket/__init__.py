"""Folders published in an S3-compatible bucket: files by content, a pointer to what is current."""
