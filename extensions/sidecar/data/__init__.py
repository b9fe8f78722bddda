"""The sidecar's data: drafts of the training set's calls, and what each should have been."""
