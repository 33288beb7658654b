"""Bundle, numerics, back ends, generation, video, report and command line: all that runs without torch."""
