"""A small stand-in of the package cuda-bindings over the mock of libcuda.so.1: what tritonclient's module cuda_shared_memory uses of it."""
