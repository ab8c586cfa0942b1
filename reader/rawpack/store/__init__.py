"""A store, opened; several as one; the shards of each; and the samples that a view selects."""
