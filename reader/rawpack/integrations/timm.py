"""A loader over a store for timm's training scripts, as `timm.data.create_loader` makes it. timm is not imported
here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rawpack.choose.options import Workers
from rawpack.epoch.loader import Loader
from rawpack.integrations.adapter import imported
from rawpack.integrations.versions import hook, warn_if_untested
from rawpack.pixels.aspects import Size

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def create_loader(
    reader: Any,
    input_size: int | tuple[int, int] | tuple[int, int, int],
    batch_size: int,
    is_training: bool = False,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    hflip: float = 0.5,
    re_prob: float = 0.0,
    re_mode: str = "const",
    re_count: int = 1,
    mean: tuple[float, ...] = _IMAGENET[0],
    std: tuple[float, ...] = _IMAGENET[1],
    device: Any = "cuda",
    seed: int = 0,
    ranks: Any = "auto",
    workers: int | Workers | None = None,
) -> PrefetchedBatches:
    """Pairs of images and labels of a `Reader`, as timm's function of this name gives them. Arguments mean the same.

    In training: shuffled, without a last batch that is not full, cropped at random to `input_size`, and flipped. Else
    in order, center-cropped. With several ranks, the last batches of an evaluation repeat some samples, as timm's do.

    seed, ranks, workers: of `Reader.batches`. Raises MissingExtraError without timm, or with one that lacks what this
    builds on, and UsageError for arguments that make no sense.
    """
    from rawpack.transforms import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize

    module = imported("timm.data.loader", "create_loader() needs timm: pip install timm")
    torch = imported("torch", "create_loader() needs PyTorch: pip install torch")
    warn_if_untested("timm")
    hook("timm", module, "PrefetchLoader", "loader", "mean", "std", "channels", "device")
    whole = (input_size, input_size) if isinstance(input_size, int) else input_size
    size: Size = (whole[-2], whole[-1])
    if is_training:
        transform: list[Any] = [RandomResizedCrop(size, scale=scale, ratio=ratio), RandomHorizontalFlip(hflip)]
    else:
        transform = [Resize(max(size)), CenterCrop(size)]
    batches = reader.batches(
        batch_size, shuffle=is_training, seed=seed, drop_last=is_training, transform=transform, ranks=ranks,
        workers=workers,
    )  # fmt: skip
    kind = type(PrefetchedBatches.__name__, (PrefetchedBatches, module.PrefetchLoader), {})
    erasing = {"re_prob": re_prob if is_training else 0.0, "re_mode": re_mode, "re_count": re_count}
    made: PrefetchedBatches = kind(
        batches.torch(as_tuple=("image", "label")), mean=mean, std=std, device=torch.device(device), **erasing
    )
    made._feed = made.loader._feed
    return made


class PrefetchedBatches(Loader):
    """timm's `PrefetchLoader`, which normalizes on the device, over batches of a store, with a position."""

    loader: Any
    mixup_enabled = False
    """Mix with timm's `Mixup`, or with `MixUp` of `rawpack.transforms`: the loader does not."""
    _given = 0
    """Batches of the latest loop: one more is in preparation."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self._given = 0
        for pair in super().__iter__():  # type: ignore[misc] # PrefetchLoader's
            self._given += 1
            yield pair

    def set_epoch(self, epoch: int) -> None:
        self._given = 0
        self.loader.set_epoch(epoch)

    def state_dict(self, after: int | None = None) -> dict[str, Any]:
        """As `TorchBatches.state_dict`. after: a number of batches; None: those that the latest loop got."""
        state: dict[str, Any] = self.loader.state_dict(self._given if after is None else after)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._given = 0
        self.loader.load_state_dict(state)

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.loader.stats()
        return found
