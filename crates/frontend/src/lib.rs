//! Listeners, routing, authorisation, limits: HTTP and gRPC.
