"""The recipe: what is done to each sample before it is stored, and the fields that the store will have."""
