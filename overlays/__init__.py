"""Build scripts of the overlay: nothing here yet; its arithmetic is fixed by fastcar.toolkit.numerics."""
