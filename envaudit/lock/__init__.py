"""From environment.yml to conda-lock.yml, and from a lock to what a node must have."""
