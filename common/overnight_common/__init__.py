"""Hold what both services need: messages, brokers, data sets and settings. No other code lives here."""

from overnight_common.facts import method

__all__ = ["method"]
