"""A real small cluster on one machine, for tests: nodes are sets of namespaces with an sshd each.

`cluster.Cluster` brings it up and down, `faults.Faults` breaks single nodes and mends them again,
`chrony`, `slurm` and `training_env` add what a training cluster has. `python -m tests.lab` keeps
one up for trying things by hand.
"""
