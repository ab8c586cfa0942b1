"""The machine as this process sees it: CPUs, memory, child processes, and warnings to the user."""
