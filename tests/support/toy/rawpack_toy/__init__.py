"""A format and an encoding of a third party: the files and rows that CONTRIBUTING.md asks for, and nothing else."""
