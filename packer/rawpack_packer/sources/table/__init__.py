"""Tables: what a scan makes of a source. Rows are samples; columns are images, keys and fields.

| file | holds |
|---|---|
| `named_files.py` | the files that a path names: one, several, a range, a glob, URLs |
| `remote_files.py` | files behind URLs, fetched while they are needed |
| `process_file.py` | bytes in a file that is gone with the process |
| `options.py` | what users say of columns |
| `choose.py` | which column is what; labels that are texts or numbers as the numbers of classes |
| `keys.py` | the values of a column as keys |
| `objects.py` | lists of boxes with what belongs to each box |
| `columns.py` | columns |
| `table.py` | the table: rows that are taken, put in order, joined with columns |
| `assemble.py` | what a scan found, as a table: the last step of each kind |
| `foreign.py` | sources of other packages as tables |
| `saved.py` | tables as one array and plain values, for a run that resumes |
| `saved_types.py` | what these may hold: classes, types, bounds |

A column reads its values in one of seven ways:

| what is read | by |
|---|---|
| a file for each row | `Files`; of a folder, `folder_files.FolderFiles` |
| a span of a file | `Spans`; of compressed ones, `archives.opened.CompressedSpans` and `archives.zip.ZipSpans` |
| a row of Arrow data | `parquet.source.ArrowColumn` |
| a row of an HDF5 data set | `hdf5.source.Hdf5Column` |
| a row of an array, in memory or mapped | `Numbers`, `Mapped` |
| a frame of a video | `video.source.Frames` |
| a Python object | `dataset.DatasetRows`; of other packages, `foreign.SourceRows`; of stores, `store.StoreRows` |
"""
