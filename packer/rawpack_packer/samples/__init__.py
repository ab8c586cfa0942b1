"""One sample, made by the recipe: its image, masks, boxes and values."""
