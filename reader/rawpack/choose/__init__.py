"""What was asked of `Reader.batches`, and what follows from it for a store and this machine."""
