"""Read rawpack stores."""
