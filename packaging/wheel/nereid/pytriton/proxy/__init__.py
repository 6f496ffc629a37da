"""The place of `Request` in PyTriton."""
