"""Prepares one sample by the recipe: its image, masks, boxes and values."""
