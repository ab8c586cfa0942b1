"""Stores as sources: one store, several stores, or a selection of their samples."""
