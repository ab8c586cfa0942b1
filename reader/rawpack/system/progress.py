"""Progress bars."""

from __future__ import annotations

import sys
import warnings
from typing import Any


def progress_bar(**settings: Any) -> Any:
    """A bar of tqdm: as a widget in a notebook that has ipywidgets, as text elsewhere, and not shown where standard
    error is closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns where ipywidgets is missing, and then uses text as well
        from tqdm.auto import tqdm
    return tqdm(**{"disable": sys.stderr is None} | settings)
