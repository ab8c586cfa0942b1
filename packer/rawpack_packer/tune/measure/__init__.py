"""Measurements of reading stores and of this machine's limits, as figures with intervals."""
