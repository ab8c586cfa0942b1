"""Measurements of stores on this machine, and the recommendation of one."""
