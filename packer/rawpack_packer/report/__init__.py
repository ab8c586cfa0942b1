"""Reports to look at: one self-contained HTML file each, or the plots alone. Needs the extra `report`."""

from __future__ import annotations
