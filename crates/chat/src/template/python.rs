//! Values as Python prints them: `str` and `repr`.

use super::limits::PROMPT_BYTES_MAX;
use minijinja::value::{DynObject, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// Deepest value that is printed; deeper ones cannot be made (`functions::keep`).
const DEPTH_MAX: usize = 512;

/// The limit on the bytes of a text, which a template reaches with values that hold one another many times.
pub(super) fn too_long() -> Error {
    Error::new(ErrorKind::WriteFailure, format!("a text is longer than {} bytes", PROMPT_BYTES_MAX))
}

/// Writes a value as `str(value)`.
pub(super) fn write_str(out: &mut String, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => push(out, text),
        None if value.is_undefined() => Ok(()),
        None => write_repr(out, value, DEPTH_MAX),
    }
}

/// The value as `str(value)`.
pub(super) fn to_str(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_str(&mut out, value)?;
    Ok(out)
}

fn push(out: &mut String, text: &str) -> Result<(), Error> {
    if out.len() + text.len() > PROMPT_BYTES_MAX {
        return Err(too_long());
    }
    out.push_str(text);
    Ok(())
}

fn write_repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deep"));
    }
    if let Some(text) = value.as_str() {
        return write_quoted(out, text);
    }
    match value.kind() {
        ValueKind::Undefined => push(out, "Undefined"),
        ValueKind::Number if !value.is_integer() => push(out, &float(f64::try_from(value.clone())?)),
        _ => match value.as_object() {
            Some(object) => write_object(out, value, object, depth - 1),
            // None, True, False and integers are the same in both.
            None => push(out, &value.to_string()),
        },
    }
}

fn write_object(out: &mut String, value: &Value, object: &DynObject, depth: usize) -> Result<(), Error> {
    match object.repr() {
        ObjectRepr::Map => {
            let is_namespace = is_namespace(object);
            push(out, if is_namespace { "<Namespace {" } else { "{" })?;
            for (index, (key, item)) in object.try_iter_pairs().into_iter().flatten().enumerate() {
                push(out, if index > 0 { ", " } else { "" })?;
                write_repr(out, &key, depth)?;
                push(out, ": ")?;
                write_repr(out, &item, depth)?;
            }
            push(out, if is_namespace { "}>" } else { "}" })
        }
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            let (open, close) = if value.is_tuple() { ("(", ")") } else { ("[", "]") };
            push(out, open)?;
            let mut count = 0;
            for item in value.try_iter()?.checked() {
                push(out, if count > 0 { ", " } else { "" })?;
                write_repr(out, &item?, depth)?;
                count += 1;
            }
            push(out, if value.is_tuple() && count == 1 { "," } else { "" })?;
            push(out, close)
        }
        _ => push(out, &value.to_string()),
    }
}

/// Whether an object is a namespace of minijinja, whose type is private.
pub(super) fn is_namespace(object: &DynObject) -> bool {
    object.type_name().ends_with("::Namespace")
}

/// A float as `repr` prints it: the shortest digits that give the same number.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let short = format!("{number:e}");
    let (mantissa, exponent) = short.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn write_quoted(out: &mut String, text: &str) -> Result<(), Error> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                let written = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
                written.expect("a String takes every text");
            }
        }
        if out.len() > PROMPT_BYTES_MAX {
            return Err(too_long());
        }
    }
    out.push(quote);
    Ok(())
}

/// Python's and Rust's rules are made from the same categories of Unicode; Rust's also excludes marks at the beginning
/// of a text, hence the letter.
fn is_printable(c: char) -> bool {
    let mut buffer = ['a', c].iter().collect::<String>();
    buffer = buffer.escape_debug().collect();
    !buffer.starts_with("a\\")
}

/// Whether Python's `str.strip` removes a character.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// The lines of a text, by the ends of lines that Python knows.
pub(super) fn lines(mut text: &str, keeps_ends: bool) -> Vec<&str> {
    let is_end = |c: char| matches!(c, '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    while let Some(end) = text.find(is_end) {
        let rest = &text[end..];
        let len = if rest.starts_with("\r\n") { 2 } else { rest.chars().next().map_or(1, char::len_utf8) };
        lines.push(&text[..if keeps_ends { end + len } else { end }]);
        text = &rest[len..];
    }
    lines.extend((!text.is_empty()).then_some(text));
    lines
}
