"""Offer the method `shapley`: attributions of a digit classifier's output, one per pixel."""

from overnight_consumer.methods.shapley.numpy_variant import shapley

__all__ = ["shapley"]
