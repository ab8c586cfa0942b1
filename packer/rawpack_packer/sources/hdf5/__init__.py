"""HDF5 files that people make by hand: data sets of images, labels and other values, one row for each sample.

| file | holds |
|---|---|
| `opening.py` | the data sets of a file, opened without following a link to another file |
| `choosing.py` | which data set is the image, the label, a field |
| `look.py` | both in a child process, since a hostile file can crash or hang the HDF5 library |
| `part.py` | the rows that a worker reads, as samples |
| `source.py` | all of it as a source |

Samples are read in the worker that packs them: if a hostile file crashes that process, the sample is rejected. With
`workers=0` there is no such process, and a hostile file can crash this one. A row that hangs the library in a worker
stops the run after ten minutes, as a dead disk does.
"""
