"""The `rawpack` command: pack, inspect and check stores."""
