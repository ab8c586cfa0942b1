"""Makes batches: slots of shared memory, workers that fill them, and the pool that owns these workers."""
