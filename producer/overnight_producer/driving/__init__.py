"""Drive a job: publish its tasks, read replies, decide, write."""
