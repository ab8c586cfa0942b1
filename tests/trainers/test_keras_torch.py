"""Keras 3 trains under PyTorch: the tests of `test_keras.py` in which the backend matters."""

import os

os.environ["KERAS_BACKEND"] = "torch"

from trainers.test_keras import (  # noqa: F401
    pytestmark,
    store,
    test_a_killed_run_resumes,
    test_a_run_that_stops_early_resumes,
    test_fit_is_a_loop_over_the_batches,
    test_lists_are_refused_by_name,
    whole,
)
