//! boxes
