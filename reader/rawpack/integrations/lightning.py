"""What Lightning forgets when it resumes. Lightning is not imported."""

from __future__ import annotations

import sys
from typing import Any

_MODULES = ("lightning.pytorch.loops.fit_loop", "pytorch_lightning.loops.fit_loop")


def load_what_was_not_loaded(loader: Any) -> None:
    """Called when a loader of batches begins an epoch. If that is in a `fit` that has read a checkpoint, and did not
    pass the positions in it on to its loaders, pass them on.

    Lightning passes them on when it sets its loaders up; but it has done that already where a module has asked for
    `trainer.estimated_stepping_batches`, before the checkpoint was read. Later versions may have other names for this:
    nothing is done then, as nothing is where there is no Lightning.
    """
    if not any(name in sys.modules for name in _MODULES):
        return
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "run" and frame.f_globals.get("__name__") in _MODULES:
            loop = frame.f_locals.get("self")
            states = getattr(loop, "_combined_loader_states_to_load", None)
            combined: Any = getattr(loop, "_combined_loader", None)
            if states and any(one is loader for one in getattr(combined, "flattened", ())):
                loop._combined_loader_states_to_load = []
                combined._load_state_dicts(states)
            return
        frame = frame.f_back
