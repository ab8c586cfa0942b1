"""One module for each of the six reports, and what they share."""
