"""Tables: sources whose samples are rows, with a column for the images and one for each field.

| file | holds |
|---|---|
| `named_files.py` | the files that a path names: one, several, a range, a glob, URLs |
| `remote_files.py` | files behind URLs, fetched while they are needed |
| `kept.py` | what was found in a file, for a run that resumes |
| `columns.py` | columns in memory, columns of files, and a column of byte ranges in files |
| `objects.py` | lists of boxes with what belongs to each box |
| `choose.py` | which column is what; labels that are texts or numbers as the numbers of classes |
| `options.py` | the options of all tables |
| `keys.py` | the values of a column as keys |
| `table.py` | the table: rows that are taken, put in order, joined with columns |
| `assemble.py` | what a scan found, as a table |
| `foreign.py` | sources of other packages as tables |
"""
