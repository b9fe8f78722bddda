"""The worlds that come with the package, one file each."""
