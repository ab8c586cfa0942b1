"""What docstrings and comments name in backquotes exists: a reader who looks for it finds it."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from kept import of_each
from rooms import FOLDERS, ROOT, modules, nodes_of, parsed

OTHERS = {
    "Accelerator", "gather_for_metrics", "register_for_checkpointing", "skip_first_batches",  # Accelerate
    "DataLoader", "evaluate", "predict",  # torch, Keras and Transformers
    "timm.data.create_loader", "Mixup",  # timm
    "InterpolationMode",  # torchvision
    "TensorDict", "NonTensorStack", "jax.Device", "jax.sharding.Sharding", "model.forward", "tf.string",
    "tf.data.Dataset", "Module.fit", 'last_batch_handle="pad"',  # MXNet
    "tf.train.Example", "Array2D",  # TensorFlow, datasets
    "mpi4py.futures", "fcntl.h",
    "serve_forever", "skip_file_prefixes", "tmp_path",  # socketserver's, of warnings.warn, pytest's
    "flock", "ulimit", "posix_fallocate", "cp", "rotate", "Authorization",  # the system's, JPEG's, HTTP's
}  # fmt: skip
"""Names of other projects that the code itself does not use."""
EXAMPLES = {
    "loader.batch_sampler",  # a variable
    "train_images", "train_masks", "trainannot", "test_images", "train2017", "val2017", "views_0", "views_1",
    "x_train", "_file_name", "numpy.py", "a.xml", "a.cls", "obj.names", "__keys__",
    "subject=train:1-20,val:21-40",
}  # fmt: skip
"""Files, folders, columns, arrays and variables of users."""
OURS = (".py", ".c", ".h", ".md", ".html", ".css", ".js")
"""Ends of files that the project has, unless the code writes or reads one of that name; others are users' files."""

QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
COMMENT = re.compile(r"(?:^|\s)#\s(.*)")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
FILE = re.compile(r"[\w/.-]*\w\.[a-z]\w*")
OPTION = re.compile(r"--([a-z][a-z-]*)")


@dataclass
class Module:
    """The names of a module, and what its docstrings and comments refer to."""

    defined: set[str] = field(default_factory=set)
    """At the top, and by classes."""
    used: set[str] = field(default_factory=set)
    """Wherever they stand."""
    imported: set[str] = field(default_factory=set)
    """First parts of imports, such as numpy."""
    words: set[str] = field(default_factory=set)
    """In its strings: options, fields, keys, members."""
    classes: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    """Class -> its attributes, and the names of its bases."""
    references: list[tuple[int, str]] = field(default_factory=list)
    """Line, and what stands in backquotes."""


def read(source: str) -> Module:
    """Everything about a module in one walk through it."""
    module, documents, tree = Module(), dict[int, int](), parsed(source)
    lines = source.split("\n")
    module.defined |= set(_made(tree.body))
    for node in nodes_of(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documents[id(node.value)] = node.lineno
            module.references += [(node.lineno, match[1]) for match in QUOTED.finditer(node.value.value)]
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            module.words.update(re.findall(r"\w+", node.value) if " " not in node.value else (), [node.value])
        elif isinstance(node, ast.ClassDef):
            made = {*_made(node.body)}
            made |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
            module.classes[node.name] = (made, {re.split(r"[.\[(]", ast.unparse(base))[-1] for base in node.bases})
            module.classes[node.name][1].update(ast.unparse(base).split("[")[0] for base in node.bases)
            module.defined |= made
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            module.imported.update(name.partition(".")[0] for name in names)
        module.used.update(_names(node))
    for number, line in enumerate(lines, 1):
        if match := COMMENT.search(line):
            module.references += [(number, quoted[1]) for quoted in QUOTED.finditer(match[1])]
    return module


def _made(body: list[ast.stmt]) -> Iterator[str]:
    """What statements define where they stand."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from _made([*node.body, *node.orelse])


def _names(node: ast.AST) -> list[str]:
    """The names that a node is made of."""
    if isinstance(node, ast.alias):
        return [*node.name.split("."), node.asname or ""]
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")
    return [name for name in (getattr(node, key, None) for key in ("id", "attr", "arg", "name")) if name]


class Names:
    """All names of some modules: what a reference may be to."""

    def __init__(self, read: dict[str, Module]) -> None:
        self.modules = read

    @cached_property
    def everywhere(self) -> set[str]:
        """Names that may be referred to in any module, those of Python included."""
        names = {*dir(builtins), *sys.stdlib_module_names, *keyword.kwlist, "self"}
        for name, module in self.modules.items():
            names.update(name.split("."), module.defined, module.words)
        return names

    @cached_property
    def imported(self) -> set[str]:
        """What any module imports: names of other packages are referred to as theirs."""
        return {name for module in self.modules.values() for name in module.imported}

    @cached_property
    def tops(self) -> dict[str, set[str]]:
        """The last part of a module's name -> what modules of that name define, and those in them."""
        tops: dict[str, set[str]] = {}
        for name, module in self.modules.items():
            above, _, last = name.rpartition(".")
            tops.setdefault(last, set()).update(module.defined)
            tops.setdefault(above.rpartition(".")[2], set()).add(last)
        return tops

    @cached_property
    def classes(self) -> dict[str, tuple[set[str], set[str]]]:
        return {name: entry for module in self.modules.values() for name, entry in module.classes.items()}

    def has_attribute(self, name: str, attribute: str) -> bool:
        """Whether a class has it, or may have it from a class that is not ours."""
        if name not in self.classes:
            return name not in ("object", "Protocol", "ABC")
        made, bases = self.classes[name]
        return attribute in made or any(self.has_attribute(base, attribute) for base in bases)

    def has(self, reference: str, module: str) -> bool:
        """Whether what stands in backquotes in a module exists, as far as it names anything."""
        own = self.modules[module]
        if FILE.fullmatch(reference) and reference.endswith(OURS):
            return reference in own.words or bool(files_named(reference))
        if option := OPTION.match(reference):
            return any(n in self.everywhere or n in own.used for n in (option[1], option[1].replace("-", "_")))
        match = DOTTED.match(reference)
        rest = reference[match.end() :] if match else ""
        if match is None or not (rest == "" or rest[0] in "(=["):
            return True  # a command, a pattern, a file of a user
        first, *parts = match[0].split(".")
        if parts and not rest and FILE.fullmatch(reference) and _is_file(reference):
            return True
        if parts and (first in sys.stdlib_module_names or hasattr(builtins, first)):
            owner = import_module(first) if first in sys.stdlib_module_names else getattr(builtins, first)
            if hasattr(owner, parts[0]):
                return True
        if parts and first in FOLDERS and reference not in self.everywhere:
            return self._is_ours(match[0])
        if parts and first in self.classes:
            return self.has_attribute(first, parts[0])
        if parts and first in self.tops and (parts[0][0].isupper() or first not in self.imported | own.used):
            return parts[0] in self.tops[first]
        if parts and first not in self.imported | own.used:
            return False
        return all(part in own.used or part in self.everywhere for part in (first, *parts))

    def _is_ours(self, reference: str) -> bool:
        """Whether `rawpack.disk.tables.FORMATS` and the like is a module, or what one has, and its class."""
        module = reference
        while module not in self.modules:
            module = module.rpartition(".")[0]
        first, *parts = [*reference.removeprefix(module).lstrip(".").split("."), ""]
        names = self.modules[module].defined | self.modules[module].words
        return not first or (first in names and (not parts[0] or self.has_attribute(first, parts[0])))


def _is_file(reference: str) -> bool:
    return reference.rpartition(".")[2] in {
        "jpg", "png", "json", "jsonl", "csv", "txt", "npy", "npz", "h5", "mdb", "yaml", "html", "parquet", "toml",
    }  # fmt: skip


@cache
def _files() -> list[str]:
    folders = ("reader", "packer", "scripts", "tests", "docs")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.*"))
    return [f"/{path.relative_to(ROOT).as_posix()}" for path in paths]


def files_named(reference: str) -> list[str]:
    """The files of the checkout whose paths end so."""
    return [path for path in _files() if path.endswith(f"/{reference}")]


@cache
def names() -> Names:
    parts = of_each(parts_of, modules().values())
    return Names({name: Module(**parts[path]) for name, path in modules().items()})


def parts_of(source: str) -> dict[str, Any]:
    """What `read` finds, by name."""
    return vars(read(source))


def test_what_is_named_in_backquotes_exists() -> None:
    """Names of the module, of both packages, of Python; options, fields and keys; files of the project."""
    everything = names()
    dead = {
        f"{path.relative_to(ROOT)}:{line}: {reference}"
        for name, path in modules().items()
        for line, reference in everything.modules[name].references
        if reference not in OTHERS | EXAMPLES and not everything.has(reference, name)
    }
    assert dead == set()


def test_no_exception_outlives_its_reason() -> None:
    """A name that no docstring has any more, or that exists, is not an exception."""
    everything = names()
    needed = {
        reference
        for name, module in everything.modules.items()
        for _, reference in module.references
        if not everything.has(reference, name)
    }
    assert (OTHERS | EXAMPLES) - needed == set(), "delete it"


MODULE = '''"""As `spans.py` has it."""

import numpy as np


class Reader:
    """See `rows`, `Reader.rows` and `keep`."""

    rows: int = 0

    def take(self, count: int) -> int:
        """`count`, `--count 3`, `take(count)`, `np.int64`, `a/b.jpg`, `count=`, `self.rows`, `dict`."""
        return count + self.rows  # not `lost`, "image"
'''


def test_references_and_names_of_a_module_are_seen() -> None:
    """In docstrings and comments, and nothing else."""
    references = {text for _, text in read(MODULE).references}
    assert references == {
        "spans.py", "rows", "Reader.rows", "keep", "count", "--count 3", "take(count)", "np.int64", "a/b.jpg", "count=",
        "self.rows", "dict", "lost",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reference", "exists"),
    [
        ("spans.py", False), ("test_references.py", True), ("house/test_references.py", True), ("rows", True),
        ("keep", False), ("lost", False), ("Reader.rows", True), ("Reader.count", False), ("reader.Reader", True),
        ("reader.Lost", False), ("lost.Reader", False), ("count", True), ("--count 3", True), ("--lost", False),
        ("take(count)", True), ("lost(count)", False), ("count=", True), ("lost=3", False), ("np.int64", True),
        ("a.jpg", True), ("a/b", True), ("rawpack pack", True), ("dict", True), (".npy", True),
    ],
)  # fmt: skip
def test_what_exists_and_what_does_not(reference: str, exists: bool) -> None:
    """By the names of one module, called `rawpack.reader`."""
    source = MODULE.replace("np.int64`", "np.int64`, ").replace("count + self.rows", "np.int64(count)")
    assert Names({"rawpack.reader": read(source)}).has(reference, "rawpack.reader") is exists


def test_the_checks_see_all_modules() -> None:
    assert sum(len(module.references) for module in names().modules.values()) > 2000
    assert {Path(path).name for path in files_named("reader.py")} == {"reader.py"}
