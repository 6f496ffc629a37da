//! Model table, versions, instances, statistics.
