"""What the search of the site ranks by: which page comes first for which words. `static/search.js` does the ranking."""

from __future__ import annotations

import json

from publishing import api
from publishing.navigation import CONTENTS, HOME, names, sections

ALSO = {
    "install": "Windows, macOS, WSL, Docker, conda",
    "how-to/augment-in-the-workers": "data augmentation, random crop and flip",
    "how-to/balance-classes": "sampler, WeightedRandomSampler, oversampling, class imbalance",
    "how-to/choose-a-format-and-size": "which format, image quality",
    "how-to/distributed-ranks": "DDP, multiple GPUs, multi-GPU, multi-node, FSDP, torchrun, DistributedSampler",
    "how-to/estimate": "how long does packing take, how many hours, how many GB, million images, ImageNet size",
    "how-to/move-from": "migrate, ImageFolder, alternative to FFCV",
    "how-to/pack-detection-datasets": "boxes, bounding boxes, COCO, YOLO, Pascal VOC",
    "how-to/resume-training": "checkpoint, restart",
    "how-to/see-where-time-goes": "bottleneck, slow training, GPU utilization",
    "how-to/train-with-pytorch": "DDP, multiple GPUs, mixed precision, AMP, autocast, DataLoader",
    "how-to/transform-whole-samples": "albumentations, torchvision v2, transform boxes",
    "how-to/troubleshooting": "error message, hangs, out of memory",
}
"""Pages and what people call their subject: each of these is as good as a title of the page."""

_LATE = {"changelog", "explanation/published", "api/extending"}
"""What is not of the section for contributors, and comes as late as its pages: long, or about the code."""


def ranking() -> str:
    """JSON: the name of each page that can be found -> its other titles, a line about it, and whether it comes late.
    Pages are in the order of the navigation, which is that of pages that are equally good."""
    pages = {"index": {"titles": ["rawpack"], "about": "", "late": False}}
    named = names()
    for section in sections():
        late = section.title == "Contribute"
        pages[section.name] = {"titles": [], "about": "", "late": late}
        for path, title in section.pages:
            name = named[path]
            titles = [title, *filter(None, ALSO.get(name, "").split(", "))]
            pages[name] = {"titles": titles, "about": section.about(path), "late": late or name in _LATE}
    for name, page in api.PAGES.items():
        name = f"api/{name}"
        pages[name] = {"titles": [], "about": page.about, "late": name in _LATE}
    assert set(pages) >= {name for path, name in named.items() if path not in (HOME, CONTENTS)}
    return json.dumps(pages, ensure_ascii=False)
