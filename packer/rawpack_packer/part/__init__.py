"""A part: the share of a job that one worker packs into one shard with its record."""
