"""Keras 3 trains under PyTorch: the tests of `test_keras.py` again, in a process of their own."""

import os

os.environ["KERAS_BACKEND"] = "torch"

from trainers.test_keras import *  # noqa: F403
