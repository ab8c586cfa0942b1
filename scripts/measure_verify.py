#!/usr/bin/env python3
"""Measure what `Reader(verify=True)` costs: images/s of shuffled batches with and without it, in one process, by turns.

scripts/measure_verify.py STORE...
"""

from __future__ import annotations

import statistics
import sys
import time

from rawpack import Batches, Reader

_ROUNDS = 7
_BATCH = 256


def main() -> None:
    for store in sys.argv[1:]:
        readers = {verify: Reader(store, verify=verify) for verify in (False, True)}
        both = {verify: reader.batches(_BATCH, shuffle=True, workers=0) for verify, reader in readers.items()}
        rates: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(_ROUNDS):
            for verify, batches in both.items():
                rates[verify].append(pace(batches))
        plain, verified = (statistics.median(rates[verify][1:]) for verify in (False, True))
        extra = 1e6 / verified - 1e6 / plain
        print(f"{store}: {plain:,.0f} images/s, verified {verified:,.0f}: {extra:.0f} µs more for each image")


def pace(batches: Batches) -> float:
    """Images per CPU second of the next epoch."""
    began, images = time.process_time(), 0
    for batch in batches:
        images += len(batch["index"])
    return images / (time.process_time() - began)


if __name__ == "__main__":
    main()
