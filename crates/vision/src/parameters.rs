//! Settings as texts: parameters of the backends `image`, `boxes` and `labels`, and properties of the same names in
//! TypeScript. Errors name the parameter, what was expected and what was found.

mod boxes;
mod image;
mod labels;

pub use boxes::{BOXES, boxes};
pub use image::{IMAGE, ImageSettings, PICTURE, image, picture};
pub use labels::{LABELS, labels};

use std::collections::HashMap;
use std::str::FromStr;
use tensor::{Error, Result};

/// Texts by name. No name is unknown.
#[derive(Debug)]
pub struct Parameters<'a> {
    owner: &'a str,
    texts: HashMap<&'a str, &'a str>,
    known: &'a [&'a str],
}

impl<'a> Parameters<'a> {
    /// `owner` has the parameters `known`, and errors name it: `backend 'image'`.
    ///
    /// # Errors
    /// INVALID_ARG for a parameter that the owner does not have.
    pub fn new(
        owner: &'a str,
        texts: impl IntoIterator<Item = (&'a str, &'a str)>,
        known: &'a [&'a str],
    ) -> Result<Self> {
        let texts: HashMap<_, _> = texts.into_iter().collect();
        match texts.keys().filter(|name| !known.contains(name)).min() {
            None => Ok(Self { owner, texts, known }),
            Some(name) => {
                Err(Error::invalid(format!("{owner} has no parameter '{name}'; it has: {}", known.join(", "))))
            }
        }
    }

    /// The owner, for errors.
    pub fn owner(&self) -> &str {
        self.owner
    }

    /// A value read by `read`; `None` if there is no such parameter.
    ///
    /// # Errors
    /// INVALID_ARG if `read` does not understand the text.
    pub fn read<T>(&self, key: &str, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        debug_assert!(self.known.contains(&key), "{key} is not listed");
        let Some(text) = self.texts.get(key).map(|text| text.trim()) else { return Ok(None) };
        let wrong = || Error::invalid(format!("parameter '{key}': expected {expected}, got '{text}'"));
        read(text).map(Some).ok_or_else(wrong)
    }

    /// One of some named values.
    ///
    /// # Errors
    /// INVALID_ARG for another name.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let names = choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        self.read(key, &names, |text| {
            choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value)
        })
    }

    /// A number.
    ///
    /// # Errors
    /// INVALID_ARG for a text that is not a number of this type.
    pub fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>> {
        self.read(key, "a number", |text| text.parse().ok())
    }

    /// A boolean.
    ///
    /// # Errors
    /// INVALID_ARG for anything but `true` and `false`.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.choice(key, &[("true", true), ("false", false)])?.unwrap_or(default))
    }

    /// Width and height: `640x480`, or one number for both.
    ///
    /// # Errors
    /// INVALID_ARG for anything else.
    pub fn size(&self, key: &str) -> Result<Option<(u32, u32)>> {
        self.read(key, "a width and a height (640x480), or one side of a square", size)
    }

    /// An array of numbers, separated by commas.
    ///
    /// # Errors
    /// INVALID_ARG for another count, or a text that is not a number.
    pub fn numbers<T: FromStr + Copy + Default, const N: usize>(&self, key: &str) -> Result<Option<[T; N]>> {
        let expected = format!("{N} numbers separated by commas");
        self.read(key, &expected, |text| {
            let mut out = [T::default(); N];
            let mut parts = text.split(',');
            for slot in &mut out {
                *slot = parts.next()?.trim().parse().ok()?;
            }
            parts.next().is_none().then_some(out)
        })
    }
}

fn size(text: &str) -> Option<(u32, u32)> {
    match text.split_once(['x', 'X']) {
        Some((width, height)) => Some((width.trim().parse().ok()?, height.trim().parse().ok()?)),
        None => text.parse().ok().map(|side| (side, side)),
    }
}
