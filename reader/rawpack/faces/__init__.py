"""Faces: batches as other frameworks want them. Each framework is loaded when its face is asked for."""
