"""The tensorclass of the five ways: a module of its own, since tensordict reads its annotations as types."""

import torch
from tensordict import tensorclass


@tensorclass
class Samples:
    """All images and labels."""

    images: torch.Tensor
    targets: torch.Tensor
