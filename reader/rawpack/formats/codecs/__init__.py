"""The encodings: how one field's samples are stored inside a mapped file, and read from it."""
