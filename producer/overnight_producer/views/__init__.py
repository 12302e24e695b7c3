"""Show a driven job: on a terminal, in plain lines, as JSON."""
