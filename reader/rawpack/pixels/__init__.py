"""Arithmetic on images: resizing, geometry, planes of YCbCr, PNG files of masks."""
