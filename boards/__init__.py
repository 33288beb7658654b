"""Boards as data: nothing here yet; emulation on the workstation needs no board."""
