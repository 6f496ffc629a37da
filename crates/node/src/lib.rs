//! The napi binding: convert, call, convert back.
