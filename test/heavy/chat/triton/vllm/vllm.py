"""In the place of the package, which Triton's tests look for."""
