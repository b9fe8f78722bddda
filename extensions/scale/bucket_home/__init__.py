"""A home that lives in a bucket: this machine's folder is a working copy of what is committed."""
