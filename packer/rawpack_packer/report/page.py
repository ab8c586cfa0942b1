"""Writes one self-contained HTML file from a template: no other files, no network, no script."""

from __future__ import annotations

import base64
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cv2
import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

import rawpack
from rawpack.errors import PackError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.report.figures import Plot, svg

_SHOWN = ("cpu", "cpus", "cpu_quota", "memory_limit_bytes", "os", "python")


def write_page(path: Path, template: str, **values: Any) -> None:
    """Fill a template of this package and write it to `path`. All values but `markupsafe.Markup` are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rawpack_packer.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = text.size
    environment.filters["plain"] = text.plain
    page = environment.get_template(template).render(
        **values,
        command=text.plain(shlex.join(["rawpack", *sys.argv[1:]])),
        machine=[
            (
                name.removesuffix("_bytes").replace("_", " "),
                text.size(value) if name.endswith("_bytes") and not isinstance(value, str) else value,
            )
            for name, value in machine.describe().items()
            if name in _SHOWN and value is not None
        ],
        version=rawpack.__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    path.write_text(page, "utf-8")


def both(plot: Plot, title: str, name: str) -> Markup:
    """A plot as drawn for a wide page and for a phone; the page shows the one that fits."""
    return Markup('<figure class="wide">{}</figure>\n<figure class="narrow">{}</figure>').format(
        Markup(svg(plot, title, f"{name}-wide")), Markup(svg(plot, title, f"{name}-narrow", narrow=True))
    )


def picture(image: NDArray[np.uint8], *, lossless: bool = True) -> str:
    """A data URI of an image (H, W, C): PNG, or a JPEG of good quality."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.shape[2] == 3 else image
    done, data = cv2.imencode(".png" if lossless else ".jpg", bgr, [] if lossless else [cv2.IMWRITE_JPEG_QUALITY, 88])
    if not done:
        raise PackError(f"OpenCV cannot write an image of {image.shape}")
    kind = "png" if lossless else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data.tobytes()).decode()}"
