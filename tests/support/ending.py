"""A program that ends one Ray run after another in the middle: `python ending.py ADDRESS ROUNDS SOURCE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from troubled import At, troubled

from rawpack import PackError
from rawpack_packer import recipe as recipes
from rawpack_packer.engines import RayEngine
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import RunOptions
from rawpack_packer.sources import open_source


def stop() -> None:
    raise PackError("stopped")


def main() -> None:
    address, rounds, source, folder = sys.argv[1], int(sys.argv[2]), open_source(sys.argv[3]), Path(sys.argv[4])
    recipe = recipes.make_recipe(size="64", shard_size="1")
    with RayEngine(address, timeout=120) as engine:
        how = RunOptions(max_rejects=20, engine=engine)
        for k in range(rounds):
            try:
                # Early in a part and late in it, so that others are anywhere.
                Job(troubled(source, At(k * 37 % len(source), stop)), recipe, folder / f"{k}", how).run()
            except PackError as error:
                if not str(error).endswith("stopped"):
                    raise
        Job(source, recipe, folder / "store", how).run()
    print("sound")


if __name__ == "__main__":
    main()
