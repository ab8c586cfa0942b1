"""Image arithmetic: resizing, geometry, planes of YCbCr, and PNG files of masks."""
