"""All files and folders that rawpack makes, it makes in one module: nothing planted in a folder is overwritten."""

from __future__ import annotations

import ast

from kept import of_each
from rooms import FOLDERS, nodes_of, parsed

MODULE = "rawpack/system/writing.py"
ALLOWED: dict[tuple[str, str], str] = {
    ("rawpack_packer/tune/system.py", "mkdtemp"): "a folder of a new name that nobody else can open",
    ("rawpack_packer/sources/archives/opened.py", "TemporaryFile"): "a file without a name",
    ("rawpack_packer/sources/table/process_file.py", "TemporaryFile"): "a file without a name",
    ("rawpack_packer/report/figures.py", "savefig"): "into memory",
    ("rawpack_packer/job/upload.py", "makedirs"): "behind a URL",
    ("rawpack_packer/inspect/warm.py", "touch"): "a file in the reader's cache was used just now",
    ("rawpack/remote/fetch.py", "touch"): "a file in the cache was used just now",
    ("rawpack/store/shard_files.py", "touch"): "a file in the cache was used just now",
    ("rawpack/system/files.py", "open"): "only reads",
    ("rawpack/system/memory.py", "TemporaryFile"): "a file without a name",
    ("rawpack/integrations/keras.py", "mkdir"): "a checkpoint, in a folder that the user named",
    ("rawpack/integrations/keras.py", "write_bytes"): "a checkpoint, in a folder that the user named",
    ("rawpack/integrations/keras.py", "replace"): "a checkpoint, in a folder that the user named",
    ("rawpack_packer/testing/engines.py", "touch"): "in the folder of a test",
    ("rawpack_packer/testing/formats.py", "copytree"): "in the folder of a test",
    ("rawpack_packer/testing/formats.py", "write_bytes"): "in the folder of a test",
    ("rawpack_packer/testing/sources.py", "mkdir"): "in the folder of a test",
}
"""(module, call) -> why it may go round `writing`."""

MAKES = {
    "write_bytes", "write_text", "mkdir", "makedirs", "rename", "renames", "touch", "mknod", "mkfifo", "symlink",
    "link", "symlink_to", "hardlink_to", "truncate", "copyfile", "copy2", "copytree", "copymode", "mkdtemp", "mkstemp",
    "TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory", "SpooledTemporaryFile", "open_memmap", "tofile",
    "savez", "savetxt", "imwrite", "savefig",
}  # fmt: skip
"""Calls that make or change what is at a path, whatever they are called on."""
READING = {"O_RDONLY", "OPEN_FLAGS"}
"""Flags of `os.open` that only read."""


def making(source: str) -> list[tuple[int, str]]:
    """Line and name of each call that makes, writes or renames a file or a folder."""
    found = []
    for node in nodes_of(parsed(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        on = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if on in ("writing", "self._file", "file", "self._samples", "self._index", "sparse"):
            continue  # the module, and files that it opened
        # Of a path: of a text, it has two arguments.
        replaces = name == "replace" and (on == "os" or (len(node.args) == 1 and not node.keywords))
        if name in MAKES or replaces or (name == "open" and _writes(node, on)):
            found.append((node.lineno, name))
    return found


def _writes(node: ast.Call, on: str) -> bool:
    """Whether an `open` may write."""
    if node.args and ast.unparse(node.args[0]) == "os.devnull":
        return False
    if on == "os":
        parts = ast.walk(node.args[1])
        flags = {getattr(one, "attr", None) or getattr(one, "id", None) for one in parts} - {"os", None}
        return not flags <= READING
    words = [*node.args[:2], *(word.value for word in node.keywords if word.arg == "mode")]
    texts = [one.value for one in words if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any({*text} <= {*"rwaxbt+"} and {*"wax+"} & {*text} for text in texts)


def found() -> dict[tuple[str, str], list[int]]:
    calls: dict[tuple[str, str], list[int]] = {}
    paths = [(package, path) for package, folder in FOLDERS.items() for path in sorted(folder.rglob("*.py"))]
    lines = of_each(making, [path for _, path in paths])
    for package, path in paths:
        where = f"{package}/{path.relative_to(FOLDERS[package]).as_posix()}"
        if where != MODULE:
            for line, name in lines[path]:
                calls.setdefault((where, name), []).append(line)
    return calls


def test_files_are_made_in_one_module() -> None:
    """`rawpack.system.writing` follows no link that somebody planted; no other module makes or renames files, or opens
    them for writing."""
    calls = found()
    assert {call: lines for call, lines in calls.items() if call not in ALLOWED} == {}
    assert set(ALLOWED) - set(calls) == set(), "delete it from ALLOWED"
