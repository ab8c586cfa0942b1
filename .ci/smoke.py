"""Try an installed wheel as its users will: run with the environment's Python, outside the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

HEAVY = ("click", "tqdm", "cv2", "torch")


def main() -> None:
    check_top(Path(sys.argv[1]))
    check_imports()
    check_native(Path(sys.argv[1]))
    with TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        make_images(photos)
        for form in ("memmap", "hdf5", "lmdb"):
            check_format(form, photos, Path(folder) / form)
    print("the wheel works")


def check_top(wheel: Path) -> None:
    """Only the two packages at the top of the wheel, beside its metadata."""
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    packages = {top for top in tops if not top.endswith(".dist-info")}
    expect(packages == {"rawpack", "rawpack_packer"}, f"top of the wheel: {sorted(packages)}")


def check_imports() -> None:
    """`import rawpack` is light, and comes from the environment."""
    code = f"import json, sys, rawpack; print(json.dumps([rawpack.__file__, [m for m in {HEAVY} if m in sys.modules]]))"
    file, loaded = json.loads(subprocess.check_output([sys.executable, "-P", "-c", code]))
    expect(not loaded, f"import rawpack loads {', '.join(loaded)}")
    expect(Path(file).is_relative_to(sys.prefix), f"rawpack was imported from {file}")


def check_native(wheel: Path) -> None:
    """The native core is in the wheels of a platform, and works."""
    variables = {name: value for name, value in os.environ.items() if name != "RAWPACK_NATIVE"}
    code = "from rawpack import native; print(native.state())"
    state = subprocess.check_output([sys.executable, "-P", "-c", code], env=variables, text=True).strip()
    expect(state.startswith("off: ") == wheel.name.endswith("-any.whl"), f"{wheel.name}: the native core is {state}")
    print(f"native core: {state}")


def make_images(folder: Path) -> None:
    """Twelve images in two classes."""
    import cv2
    import numpy as np

    random = np.random.default_rng(0)
    for number in range(12):
        path = folder / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        small = random.integers(0, 255, (6, 8, 3), np.uint8)
        cv2.imwrite(str(path), cv2.resize(small, (320, 240), interpolation=cv2.INTER_CUBIC))


def check_format(form: str, photos: Path, store: Path) -> None:
    """Pack, verify and read in one format, by the installed command and in this process."""
    from rawpack import Reader

    pack = ["rawpack", "pack", "--format", form, "--size", "64", "--quiet", str(photos), str(store)]
    for command in (pack, ["rawpack", "inspect", "--verify", "--json", str(store)]):
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        expect(done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}")
    batches = list(Reader(store).batches(8, shuffle=True, workers=2))
    expect([len(batch["image"]) for batch in batches] == [8, 4], f"{form}: {len(batches)} batches")
    expect(batches[0]["image"].shape == (8, 64, 64, 3), f"{form}: images {batches[0]['image'].shape}")
    rows = sorted(int(row) for batch in batches for row in batch["index"])
    expect(rows == list(range(12)), f"{form}: samples {rows}")
    expect(all(batch["image"].std() > 10 for batch in batches), f"{form}: images are blank")
    print(f"{form}: packed, verified, read")


def expect(true: bool, otherwise: str) -> None:
    if not true:
        sys.exit(f"smoke test failed: {otherwise}")


if __name__ == "__main__":
    main()
