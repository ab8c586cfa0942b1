"""How a batch is made: slots of shared memory, the workers that fill them, and the pool that hands them over."""
