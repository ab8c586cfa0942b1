"""How shards hold the bytes of a sample: one module for each codec. Their rows are in `rawpack.disk.tables`."""
