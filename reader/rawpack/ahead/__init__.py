"""The steps of an epoch before they are made: their samples, and the files that they wait for."""
