"""The recipe: what is done to each sample before it is stored, and the fields that a store then has."""
