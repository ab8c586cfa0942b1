"""LMDB databases that other tools wrote: where their values are, what they hold, and both as a source.

| file | holds |
|---|---|
| `pages.py` | the keys of a database, and where in its file each value is |
| `datum.py` | Caffe's `Datum` |
| `values.py` | what a value holds: an image file, a pickle or a `Datum` |
| `source.py` | all of it as a source |

liblmdb is not called. It trusts its file, so that a damaged one can kill the process; it would create a lock file next
to a database, and it refuses to open one file twice. Here a database is a file of which some bytes are read.
"""
