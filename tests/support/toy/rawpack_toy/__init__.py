"""A format, an encoding and a transform step of a third party: the files and rows that CONTRIBUTING.md asks for, and
nothing else."""
