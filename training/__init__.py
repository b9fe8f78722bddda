"""Training, evaluation, release and drift. May import serving, assets, warehouse."""
