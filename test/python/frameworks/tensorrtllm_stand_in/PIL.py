"""Stand-in for Pillow, for imports only."""

Image = None
