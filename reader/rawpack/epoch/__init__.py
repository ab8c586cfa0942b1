"""Goes through an epoch: which batch comes next, where each iterator is, and what is kept for the next epoch."""
