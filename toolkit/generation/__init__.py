"""From a prompt to codes: the one loop that every back end runs under, its seeds, thresholds and record."""
