//! `POST /v1/responses`, without state: a body becomes a chat, and what the model says becomes items and events.

mod events;
mod fields;
mod items;
mod read;

pub(crate) use events::{ResponsePrinter, ResponseStatus, Spoken, Tokens};
pub use fields::FIELDS;
pub(crate) use fields::name_of;
pub use read::read;

/// The part of a request that its response repeats.
#[derive(Debug)]
pub struct RepeatedSettings {
    /// Members of the object `response`.
    members: String,
}
