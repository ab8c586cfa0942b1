"""Trials of candidates on a sample of a source, and the recommendation of one."""
