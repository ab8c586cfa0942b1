"""Ultralytics trains on the images of a store: a trainer whose datasets read pixels there, and boxes from the label
files. Ultralytics is not imported here."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from rawpack.errors import UsageError
from rawpack.integrations.adapter import imported
from rawpack.integrations.versions import hook, warn_if_untested


def store_trainer(reader: Any, trainer: type | None = None) -> Any:
    """A trainer of Ultralytics whose images come from a store:

        model.train(trainer=store_trainer(Reader("store/")), data="set/data.yaml")

    reader: of a store of the whole data set, with all splits: `rawpack pack --source yolo --size keep`. trainer: the
    class to derive from, for other tasks than detection; None: DetectionTrainer.

    Raises MissingExtraError without Ultralytics, or with one that lacks what this builds on.
    """
    detect = imported("ultralytics.models.yolo.detect", "store_trainer() needs Ultralytics: pip install ultralytics")
    warn_if_untested("ultralytics")
    base: Any = detect.DetectionTrainer if trainer is None else trainer
    hook("ultralytics", base, "build_dataset", "img_path", "mode", "batch")
    images_of_store()

    class StoreTrainer(base):  # type: ignore[misc] # known when it is called
        """Its class travels by value to the processes of several GPUs."""

        def build_dataset(self, img_path: str, mode: str = "train", batch: int | None = None) -> Any:
            from rawpack.integrations.adapter import imported
            from rawpack.integrations.ultralytics import images_of_store

            args, train = self.args, mode == "train"
            unwrap_model = imported("ultralytics.utils.torch_utils", "this needs Ultralytics").unwrap_model
            return images_of_store()(
                reader,
                img_path,
                imgsz=args.imgsz,
                augment=train,
                hyp=args,
                prefix=f"{mode}: ",
                rect=args.rect or not train,
                batch_size=batch,
                stride=max(int(unwrap_model(self.model).stride.max()), 32),
                pad=0.0 if train else 0.5,
                single_cls=args.single_cls,
                classes=args.classes,
                fraction=args.fraction if train else 1.0,
                data=self.data,
                task=args.task,
            )

    return StoreTrainer


class ImagesOfStore:
    """The part of a `YOLODataset` that reads images. Ultralytics expects them in the order blue, green, red."""

    im_files: list[str]
    imgsz: Any

    def __init__(self, reader: Any, *args: Any, data: dict[str, Any], **options: Any) -> None:
        """reader: a `Reader`. The rest is of `YOLODataset`. Raises UsageError where an image is not in the store."""
        # "ram" lets a mosaic use any image, and nothing is cached.
        super().__init__(*args, data=data, cache="ram", **options)  # type: ignore[call-arg]
        self.reader = reader
        row_of = {key: row for row, key in enumerate(self.reader.column("key"))}
        keys = [Path(file).resolve().relative_to(Path(data["path"]).resolve()).as_posix() for file in self.im_files]
        if missing := [key for key in keys if key not in row_of]:
            raise UsageError(
                f"{reader!r} has no image {missing[0]!r}, and {len(missing) - 1} more of the data set: pack all of it, "
                "the folder that `path` of data.yaml names"
            )
        self.rows = [row_of[key] for key in keys]

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.__dict__,)

    def check_cache_ram(self, safety_margin: float = 1.0) -> bool:
        return False

    def load_image(
        self, i: int, rect_mode: bool = True, resize_short: bool = False
    ) -> tuple[Any, tuple[int, int], tuple[int, int]]:
        import cv2

        image = cv2.cvtColor(self.reader[self.rows[i]]["image"], cv2.COLOR_RGB2BGR)
        height, width = image.shape[:2]
        shape = tuple(self.imgsz) if isinstance(self.imgsz, list | tuple) else (self.imgsz, self.imgsz)
        size, longest = (shape[1], shape[0]), max(shape)
        if rect_mode and resize_short:
            ratio = longest / min(height, width)
            size = (math.ceil(width * ratio), longest) if height < width else (longest, math.ceil(height * ratio))
        elif rect_mode:
            ratio = longest / max(height, width)
            size = (min(math.ceil(width * ratio), longest), min(math.ceil(height * ratio), longest))
        if size != (width, height):
            image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
        return image, (height, width), image.shape[:2]


@cache
def images_of_store() -> Any:
    """The `YOLODataset` over a store. Raises MissingExtraError where Ultralytics has none to build on."""
    data = imported("ultralytics.data", "this needs Ultralytics: pip install ultralytics")
    hook("ultralytics", data.YOLODataset, "load_image", "i", "rect_mode", "resize_short")
    hook("ultralytics", data.YOLODataset, "check_cache_ram", "safety_margin")
    return type("StoreDataset", (ImagesOfStore, data.YOLODataset), {})


def _again(values: dict[str, Any]) -> Any:
    kind = images_of_store()
    made = kind.__new__(kind)
    made.__dict__.update(values)
    return made
