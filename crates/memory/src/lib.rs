//! Slab pools and the system shared memory registry.
