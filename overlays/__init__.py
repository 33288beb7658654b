"""Overlays as data: one TOML file each, which says what its engine is built for and on which board."""

from .load import Engine, engine_names, load_engine

__all__ = ["Engine", "engine_names", "load_engine"]
