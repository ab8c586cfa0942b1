"""Which store on which machine: measured, compared, recommended."""
