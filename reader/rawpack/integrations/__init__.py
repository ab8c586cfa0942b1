"""Adapters: batches as other frameworks want them. Each framework is loaded when its adapter is asked for."""
