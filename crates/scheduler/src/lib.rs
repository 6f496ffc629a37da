//! Queues, batches and policies. Pure: time is an argument.
