"""Open stores: one, or several as one; their shards; and selections of their samples."""
