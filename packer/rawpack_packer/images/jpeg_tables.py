"""Quantization tables of JPEG files that are made for natural images: `--jpeg-tables jpegli`.

The tables are those of jpegli. The encoder is libjpeg-turbo, without jpegli's adaptive quantization. The numbers and
the formula are from `lib/jpegli/quant.cc` and `lib/jpegli/encode.cc` of https://github.com/google/jpegli.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
VERSION = 1
"""Recorded in stores. To be increased when any value of a table changes."""
_SCALE, _SCALE_420 = 1.7396601, 1.22
"""Of all values; and what those of 4:2:0 are multiplied with besides."""
_KNEE = 1.5
"""The distance from which steps of low frequencies grow more slowly than the distance."""


def _table(text: str) -> Floats:
    return np.array(text.split(), np.float64)


_LUMA = _table("""
    1.23974 1.72271 2.92122 2.81274 3.33982 3.4636 3.84092 3.86956
    1.72271 2.09289 2.84568 2.70451 3.44077 3.16623 4.02521 4.03532
    2.92122 2.84568 2.95874 3.38629 3.61952 3.90463 3.75784 4.23745
    2.81274 2.70451 3.38629 3.38006 4.16799 4.80551 4.78426 4.60593
    3.33982 3.44077 3.61952 4.16799 4.57985 4.92324 5.57411 5.48533
    3.4636 3.16623 3.90463 4.80551 4.92324 5.43936 5.0939 6.08723
    3.84092 4.02521 3.75784 4.78426 5.57411 5.0939 5.43846 5.40374
    3.86956 4.03532 4.23745 4.60593 5.48533 6.08723 5.40374 4.37787
""")
_CHROMA = _table("""
    2.92173 4.49768 7.35634 6.58389 8.53561 8.79943 9.18834 9.4827
    4.49768 6.30955 7.02461 7.15645 8.04906 7.01243 6.71192 8.38031
    7.35634 7.02461 6.8921 6.88282 8.78223 6.87748 7.88582 8.67909
    6.58389 7.15645 6.88282 7.00307 7.72235 7.95543 7.47341 8.36293
    8.53561 8.04906 8.78223 7.72235 6.77801 9.48492 9.0437 8.05318
    8.79943 7.01243 6.87748 7.95543 9.48492 8.60761 9.9227 64.25135
    9.18834 6.71192 7.88582 7.47341 9.0437 9.9227 63.18494 83.35294
    9.4827 8.38031 8.67909 8.36293 8.05318 64.25135 83.35294 114.89202
""")
_EXPONENTS = _table("""
    1 0.51 0.67 0.74 1 1 1 1
    0.51 0.66 0.69 0.87 1 1 1 1
    0.67 0.69 0.84 0.83 0.96 1 1 1
    0.74 0.87 0.83 1 1 0.91 0.91 1
    1 1 0.96 1 1 1 1 1
    1 1 1 0.91 1 1 1 1
    1 1 1 0.91 1 1 1 1
    1 1 1 1 1 1 1 1
""")
_CHROMA_420 = _table("""
    0.4093 0.3209 0.3477 0.3333 0.3144 0.2823 0.3214 0.3354
    0.3209 0.3111 0.3489 0.2801 0.3059 0.3119 0.4135 0.3445
    0.3477 0.3489 0.3586 0.3257 0.2727 0.3754 0.3369 0.3484
    0.3333 0.2801 0.3257 0.302 0.3515 0.341 0.3971 0.3839
    0.3144 0.3059 0.2727 0.3515 0.3105 0.3397 0.2716 0.3836
    0.2823 0.3119 0.3754 0.341 0.3397 0.3212 0.3203 0.0726
    0.3214 0.4135 0.3369 0.3971 0.2716 0.3203 0.0798 0.0553
    0.3354 0.3445 0.3484 0.3839 0.3836 0.0726 0.0553 0.3368
""")
"""What chroma's steps are multiplied with, where it has a quarter of the pixels."""


@lru_cache(maxsize=8)
def jpegli_tables(quality: int, subsampling: str) -> tuple[list[int], list[int]]:
    """The tables of luma and chroma, 64 steps each, row by row. quality: 1 to 100. subsampling: "420", "444", ..."""
    distance = _distance(quality)
    scale = np.full(64, distance)
    if distance >= _KNEE:
        scale = np.maximum(distance / 2, _KNEE ** (1 - _EXPONENTS) * distance**_EXPONENTS)
    scale *= _SCALE
    luma, chroma = _LUMA * scale, _CHROMA * scale
    if subsampling == "420":
        luma, chroma = luma * _SCALE_420, chroma * _SCALE_420 * _CHROMA_420
    made = [np.floor(table + 0.5).clip(1, 255).astype(int).tolist() for table in (luma, chroma)]
    return made[0], made[1]


def _distance(quality: int) -> float:
    """The visible difference that jpegli aims at for a quality: 1.0 for 90."""
    if quality == 100:
        return 0.01
    if quality >= 30:
        return 0.1 + (100 - quality) * 0.09
    return float(53 / 3000 * quality**2 - 23 / 20 * quality + 25)


def library() -> str:
    """The encoder of files with these tables, and its version."""
    import PIL
    from PIL import features

    return f"pillow {PIL.__version__} (libjpeg-turbo {features.version('libjpeg_turbo')}), rawpack.jpegli {VERSION}"
