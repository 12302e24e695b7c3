"""Make jobs, drive them and show how far they are; the command line `overnight`."""
