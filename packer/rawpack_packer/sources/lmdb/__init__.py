"""LMDB databases that other tools wrote: where their values are, what they hold, and both as a source.

| file | holds |
|---|---|
| `look.py` | the keys of a database, and where in its file each value is, by liblmdb in a child process |
| `source.py` | what a value holds, and all of it as a source |

Workers do not call liblmdb: to them, a database is a file of which some bytes are read.
"""
