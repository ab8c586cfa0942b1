"""Order: which sample comes at which position of which epoch, and which positions each rank reads."""
