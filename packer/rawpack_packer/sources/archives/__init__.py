"""Archives as sources, read without being unpacked.

| file | holds |
|---|---|
| `files.py` | which archives a path names |
| `spool.py` | archives behind URLs, fetched to be packed |
| `kept.py` | what was found in archives, for a run that resumes |
| `spans.py`, `compressed.py`, `zip.py` | where members are in them, and how a worker reads one |
| `tar.py` | the headers of a tar archive |
| `source.py`, `index.py`, `tree.py` | archives of folders as a source |
| `labels.py`, `ilsvrc2012.txt` | the labels of ImageNet's archives |
| `webdataset.py`, `samples.py`, `members.py` | WebDataset shards as a source; their samples; fields made of members |
| `recordio.py`, `records.py` | RecordIO files as a source; their records |
"""

from __future__ import annotations
