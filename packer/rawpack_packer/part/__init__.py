"""A part: a share of a job, of which one worker makes one shard and its record."""
