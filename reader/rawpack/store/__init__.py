"""Open stores: one, or several as one; and their shards."""
