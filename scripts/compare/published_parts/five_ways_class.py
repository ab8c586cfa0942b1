"""The tensorclass of `five_ways`, in a module of its own because tensordict needs annotations that are types."""

import torch
from tensordict import tensorclass


@tensorclass
class Samples:
    """All images and labels."""

    images: torch.Tensor
    targets: torch.Tensor
