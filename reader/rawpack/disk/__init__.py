"""What is stored in a store's folder: the manifest, columns, splits, and how its files are opened and mapped."""
