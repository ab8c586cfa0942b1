"""What this process has of the machine: CPUs, memory, and child processes."""
