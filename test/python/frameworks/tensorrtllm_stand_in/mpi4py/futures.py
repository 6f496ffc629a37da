MPICommExecutor = None
