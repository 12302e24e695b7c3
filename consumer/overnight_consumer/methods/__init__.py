"""Hold the methods that ship with Overnight."""
