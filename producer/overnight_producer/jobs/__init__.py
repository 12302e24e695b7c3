"""Keep jobs: what a job is, its file, its ranges, and the folder that jobs live in."""
