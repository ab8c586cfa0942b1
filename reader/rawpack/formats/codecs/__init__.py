"""How shards hold the bytes of a sample: one module for each codec. `rawpack.disk.tables` lists them."""
