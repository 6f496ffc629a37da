"""A stand-in for Pillow, as far as backends of vLLM use it: bytes that begin as a PNG does are an image."""
