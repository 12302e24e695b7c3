"""Report on jobs, queues and this machine, for the commands that only look."""
