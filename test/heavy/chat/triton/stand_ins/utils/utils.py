"""In the place of constants of Triton's front end."""
HTTP_DEFAULT_MAX_INPUT_SIZE = 64 << 20
