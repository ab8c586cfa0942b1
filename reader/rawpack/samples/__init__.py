"""The samples of a reader: rows or clips, chosen by conditions or positions, and what can be asked about them."""
