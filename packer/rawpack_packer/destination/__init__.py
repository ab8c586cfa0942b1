"""The folder that a job packs into: what may be in it, who holds it, what it records."""
