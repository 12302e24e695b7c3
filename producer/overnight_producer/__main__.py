"""Run the command line with `python -m overnight_producer`."""

from overnight_producer.cli import main

main()
