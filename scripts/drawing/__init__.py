"""Tables and plots of what `scripts/compare` and `scripts/bench/run.py` measured, for a terminal and for pages."""
