"""From an engine's configuration to its bitstream: the phases, what runs them, and what their reports say."""
