"""The warehouse: content digests, blobs, versioned tables, audits, publication and paid effects.

Nothing here knows what a marketplace or a tool is; the rooms of the pipeline live in `assets/`.
"""
