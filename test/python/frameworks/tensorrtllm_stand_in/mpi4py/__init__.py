"""Stand-in for mpi4py, for imports only."""
