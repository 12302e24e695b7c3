"""Write results to files."""
