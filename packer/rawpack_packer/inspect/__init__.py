"""What is in a store: described, verified, warmed, drawn."""
