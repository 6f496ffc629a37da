"""Stand-in for requests, for imports only."""
