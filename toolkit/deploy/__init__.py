"""From a bundle on the workstation to a command on the board: staged, verified, installed, switched as a whole."""
