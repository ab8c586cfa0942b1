"""Clips: samples of several frames of one video."""
