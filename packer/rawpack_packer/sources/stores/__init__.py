"""Stores as sources: one or several, or a selection of their samples."""
