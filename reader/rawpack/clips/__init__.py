"""Clips: runs of frames of one video as samples.

runs.py    which frames follow one another, with none missing between them
table.py   which rows each clip is made of
reader.py  the reader of clips
"""

from rawpack.clips.reader import Clips

__all__ = ["Clips"]
