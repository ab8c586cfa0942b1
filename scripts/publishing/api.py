"""The pages of the Python API that are made from docstrings: which names are on which."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

INDEX, TITLE = "api/index", "API from docstrings"
INTRODUCTION = f"""\
The [{TITLE}]({INDEX}.rst) has the signature and the docstring of every public name. [The Python
API](reference/python.md) explains how they work together.

For machines, both are <a href="api.md">one plain page</a>, and <a href="llms.txt">llms.txt</a> lists all pages as
Markdown.
"""


@dataclass(frozen=True)
class Page:
    """One page: its title, a line about it, and modules with those of their names that it describes, in order."""

    title: str
    about: str
    names: tuple[tuple[str, str], ...]

    def described(self) -> list[tuple[str, str]]:
        """Module and name of everything on the page; `*` stands for all public names of the module."""
        return [
            (module, name)
            for module, words in self.names
            for name in (import_module(module).__all__ if words == "*" else words.split())
        ]


PAGES = {
    "reading": Page(
        "Read stores",
        "A `Reader` opens a store and makes `Batches`. The rest are values for options, and errors.",
        (
            ("rawpack", "Reader Batches Balanced Blocks Buckets Cache Ranks Weighted Workers look"),
            ("rawpack.inspection", "Inspection"),
            ("rawpack.targets", "torchvision_targets instance_masks yolo_targets"),
            ("rawpack", "RawpackError UsageError StoreError UnfinishedStoreError DamagedStoreError DecodeError"),
            ("rawpack", "WorkerError PackError MissingExtraError"),
        ),
    ),
    "transforms": Page(
        "rawpack.transforms",
        "Steps for `transform=` of `Reader.batches`, and what a step of your own derives from.",
        (("rawpack.transforms", "*"),),
    ),
    "frameworks": Page(
        "Batches for frameworks",
        "What `batches.torch()` and the other methods for a framework return, and the adapters that are imported.",
        (
            ("rawpack.integrations.torch", "TorchBatches"),
            ("rawpack.integrations.accelerate", "AcceleratedBatches"),
            ("rawpack.integrations.placed", "PlacedBatches"),
            ("rawpack.integrations.keras", "KerasBatches"),
            ("rawpack.integrations.keras", "KerasCheckpoint"),
            ("rawpack.integrations.data_iter", "DataIter"),
            ("rawpack.integrations.queue", "BatchQueue"),
            ("rawpack.integrations.timm", "create_loader"),
            ("rawpack.integrations.transformers", "StoreTrainerMixin"),
            ("rawpack.integrations.ultralytics", "store_trainer"),
        ),
    ),
    "packing": Page(
        "Pack and look after stores",
        "Each function does what a command of `rawpack` does. Its keywords are the options.",
        (
            ("rawpack", "pack pack_splits append convert merge subset relabel export"),
            ("rawpack", "plan bench describe verify view warm doctor"),
        ),
    ),
    "extending": Page(
        "Add sources, engines and formats",
        "What a package that adds a kind of source, an engine, a format or an encoding builds on.",
        (
            ("rawpack_packer.sources", "Source SourceInfo Item FieldKind ImageKind"),
            ("rawpack_packer.engines", "Engine Report LocalEngine InlineEngine ExecutorEngine DaskEngine RayEngine"),
            ("rawpack.disk.tables", "Format Codec"),
            ("rawpack_packer.recipe.tables", "OutputFormat Encoder"),
            ("rawpack_packer.testing", "SourceConformance EngineConformance FormatConformance"),
        ),
    ),
}


def pages() -> dict[str, str]:
    """The name of each page on the site -> its reStructuredText."""
    entries = "\n".join(f"   {name}" for name in PAGES)
    heading = f"{TITLE}\n{'=' * len(TITLE)}"
    listed = "\n".join(f"- :doc:`{page.title} <{name}>`: {_as_rst(page.about)}" for name, page in PAGES.items())
    made = {INDEX: f"{heading}\n\n{listed}\n\n.. toctree::\n   :hidden:\n\n{entries}\n"}
    for name, page in PAGES.items():
        parts = [f"{page.title}\n{'=' * len(page.title)}\n\n{_as_rst(page.about)}\n"]
        parts += [_described(module, one) for module, one in page.described()]
        made[f"api/{name}"] = "\n".join(parts)
    return made


def _as_rst(line: str) -> str:
    return line.replace("`", "``")


def _described(module: str, name: str) -> str:
    heading = f"{name}\n{'-' * len(name)}\n\n"
    if isinstance(getattr(import_module(module), name), type):
        return f"{heading}.. autoclass:: {module}.{name}\n   :members:\n   :inherited-members: object\n"
    return f"{heading}.. autofunction:: {module}.{name}\n"
