"""Describes, verifies, warms and draws stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rawpack_packer.lazy import on_first_use

if TYPE_CHECKING:
    from rawpack_packer.inspect.contact_sheet import draw_contact_sheet
    from rawpack_packer.inspect.describe_source import folder_of_images, what_is_at
    from rawpack_packer.inspect.problems import Problems, class_problems

__all__ = ["Problems", "class_problems", "draw_contact_sheet", "folder_of_images", "what_is_at"]

if not TYPE_CHECKING:  # type checkers see the imports above
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "draw_contact_sheet": "contact_sheet",
            **dict.fromkeys(("Problems", "class_problems"), "problems"),
            **dict.fromkeys(("folder_of_images", "what_is_at"), "describe_source"),
        },
    )
