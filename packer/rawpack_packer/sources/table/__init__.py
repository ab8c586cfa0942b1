"""Tables: sources whose samples are rows, with a column for the images and one for each field.

| file | holds |
|---|---|
| `named_files.py` | the files that a path names: one, several, a range, a glob, URLs |
| `remote_files.py` | files behind URLs, fetched while they are needed |
| `kept.py` | what was found in a file, for a run that resumes |
| `columns.py` | columns in memory, and columns of files |
| `spans.py` | a column of byte ranges in files |
| `labels.py` | labels that are texts or numbers as the numbers of classes |
| `source.py` | columns as a source |
"""
