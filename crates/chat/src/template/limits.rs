//! Limits of templates.

/// Longest source of a template in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 1 << 18;

/// Longest prompt that a template makes, in bytes.
pub const PROMPT_BYTES_MAX: usize = 1 << 20;

/// Most steps of a template, an instruction each or what takes as long, for a conversation without text.
/// 200 messages take some ten thousand.
pub const STEPS_MAX: u64 = 1 << 20;

/// Further steps for each byte of the messages: templates that look for pictures go through each character of a text,
/// with nine steps for one.
pub(super) const STEPS_PER_BYTE: u64 = 16;
