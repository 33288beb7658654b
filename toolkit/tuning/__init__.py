"""Thresholds for a wanted replay ratio or quality: measured layer by layer, found, and compared with a uniform one."""
