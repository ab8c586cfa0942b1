"""Archives as sources, read without being unpacked.

| file | holds |
|---|---|
| `tar.py` | the headers of a tar archive |
| `zip.py` | the directory of a zip archive, and how a worker reads a member |
| `opened.py` | the pass through archives that finds their members; how a worker reads one of a compressed tar |
| `source.py`, `tree.py` | archives of folders as a source |
| `webdataset.py`, `samples.py`, `members.py` | WebDataset shards as a source; their samples; fields made of members |
| `recordio.py` | RecordIO files as a source |

Which files a path names, how they are fetched, and where members are in them: `sources/table/`.
"""

from __future__ import annotations
