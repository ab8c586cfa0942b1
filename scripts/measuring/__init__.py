"""One measurement, the same for all commands: a fresh process, and what it and its children take of CPU and memory."""
