"""What a path is: folders are listed once, files opened once for their first bytes, and every kind decides by that.

| file | holds |
|---|---|
| `listing.py` | a path with its names and first bytes, and those of the paths in it and above it |
| `kind.py` | a row of the table of kinds: what shows that a path is of it, and how surely |
"""
