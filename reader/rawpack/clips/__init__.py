"""Clips: samples that consist of several frames of one video."""
