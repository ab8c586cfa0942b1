"""HDF5 files that people make by hand: data sets of images, labels and other values, one row for each sample.

| file | holds |
|---|---|
| `file.py` | the data sets of a file, without those that a link to another file leads to |
| `source.py` | which of them are packed, and the rows that a worker reads, as a source |

Samples are read in the worker that packs them: if a hostile file crashes that process, the sample is rejected. With
`workers=0` there is no such process, and a hostile file can crash this one. A row that hangs the library in a worker
stops the run after ten minutes, as a dead disk does.
"""
