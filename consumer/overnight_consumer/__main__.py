"""Run the consumer: `python -m overnight_consumer`."""

from overnight_consumer.cli import main

main()
