"""One module for each part of the benchmark: `run` measures, `render` gives its section of the README."""
