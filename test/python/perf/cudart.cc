// perf_analyzer opens libcudart.so as soon as any kind of shared memory is asked for, system memory included. This stands in
// where there is no CUDA; no function of it is called for system memory, and each one says so if it is.
static int absent() { return 100; }  // cudaErrorNoDevice

extern "C" {
int cudaFree() { return absent(); }
int cudaIpcGetMemHandle() { return absent(); }
int cudaMalloc() { return absent(); }
int cudaMemcpy() { return absent(); }
int cudaSetDevice() { return absent(); }
const char* cudaGetErrorName(int) { return "cudaErrorNoDevice"; }
const char* cudaGetErrorString(int) { return "no CUDA here"; }
}
