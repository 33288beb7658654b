"""Build scripts of the overlay, one set a board."""
