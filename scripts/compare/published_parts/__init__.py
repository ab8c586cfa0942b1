"""One module for each of the six reports, and the modules that they share."""
