"""Image arithmetic: resizing, geometry, planes of YCgCo, and PNG files of masks."""
