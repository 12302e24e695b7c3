"""Take tasks from a broker, run methods on them in warm child processes, and answer every one."""
