//! `tojson` as transformers has it: `json.dumps` of Python.

use super::limits::PROMPT_BYTES_MAX;
use super::python;
use minijinja::value::{Kwargs, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::fmt::Write;

const DEPTH_MAX: usize = 512;

struct Writer {
    out: String,
    is_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sorts_keys: bool,
}

/// The filter: `value|tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(state: &mut State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value, Error> {
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let (positional, named) = minijinja::value::from_args::<(&[Value], Kwargs)>(args)?;
    if positional.len() > NAMES.len() {
        return Err(Error::new(ErrorKind::TooManyArguments, "tojson takes four arguments"));
    }
    let mut options = [Value::UNDEFINED, Value::UNDEFINED, Value::UNDEFINED, Value::UNDEFINED];
    for (index, name) in NAMES.iter().enumerate() {
        options[index] = match positional.get(index) {
            Some(value) => value.clone(),
            None if named.has(name) => named.get(name)?,
            None => Value::UNDEFINED,
        };
    }
    named.assert_all_used()?;
    let [ensure_ascii, indent, separators, sort_keys] = options;
    let indent = indent_of(&indent)?;
    let separator = |index: usize, default: &str| match separators.get_item_by_index(index) {
        _ if separators.is_undefined() || separators.is_none() => Ok(default.to_owned()),
        Ok(value) if value.as_str().is_some() => python::to_str(&value),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "separators of tojson are two strings")),
    };
    let mut writer = Writer {
        out: String::new(),
        is_ascii: ensure_ascii.is_true(),
        item_separator: separator(0, if indent.is_some() { "," } else { ", " })?,
        key_separator: separator(1, ": ")?,
        sorts_keys: sort_keys.is_true(),
        indent,
    };
    writer.value(value, 0)?;
    // As when minijinja prints a container, less what it charges for the text.
    state.consume_fuel(writer.out.len() as u64 / 8)?;
    Ok(Value::from(writer.out))
}

fn indent_of(value: &Value) -> Result<Option<String>, Error> {
    if value.is_undefined() || value.is_none() {
        return Ok(None);
    }
    if let Some(text) = value.as_str() {
        return Ok(Some(text.chars().take(64).collect()));
    }
    let width = value.as_i64().ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("indent of tojson is a number or a string, not {}", value.kind()),
        )
    })?;
    Ok(Some(" ".repeat(width.clamp(0, 64) as usize)))
}

impl Writer {
    fn check(&self) -> Result<(), Error> {
        if self.out.len() > PROMPT_BYTES_MAX { Err(python::too_long()) } else { Ok(()) }
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.check()?;
        if depth > DEPTH_MAX {
            return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deep for tojson"));
        }
        if let Some(text) = value.as_str() {
            self.string(text);
            return self.check();
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.out.push_str(&float(f64::try_from(value.clone())?)),
            _ => return self.container(value, depth),
        }
        Ok(())
    }

    fn container(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let unknown = || {
            let what = format!("tojson of {}, which JSON has no form for", value.kind());
            Error::new(ErrorKind::InvalidOperation, what)
        };
        let object = value.as_object().ok_or_else(unknown)?;
        match object.repr() {
            ObjectRepr::Map if !python::is_namespace(object) => {
                let mut pairs = Vec::new();
                for (key, item) in object.try_iter_pairs().ok_or_else(unknown)? {
                    pairs.push((key_of(&key)?, item));
                }
                if self.sorts_keys {
                    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                self.out.push('{');
                let is_empty = pairs.is_empty();
                for (index, (key, item)) in pairs.into_iter().enumerate() {
                    self.separate(index, depth);
                    self.string(&key);
                    self.out.push_str(&self.key_separator);
                    self.value(&item, depth + 1)?;
                }
                self.end(is_empty, depth, '}');
            }
            ObjectRepr::Seq | ObjectRepr::Iterable => {
                self.out.push('[');
                let mut count = 0;
                for item in value.try_iter()?.checked() {
                    self.separate(count, depth);
                    self.value(&item?, depth + 1)?;
                    count += 1;
                }
                self.end(count == 0, depth, ']');
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn separate(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push_str(&self.item_separator);
        }
        self.line(depth + 1);
    }

    fn end(&mut self, is_empty: bool, depth: usize, close: char) {
        if !is_empty {
            self.line(depth);
        }
        self.out.push(close);
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        let mut units = [0; 2];
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\x08' => self.out.push_str("\\b"),
                '\x0c' => self.out.push_str("\\f"),
                c if c < ' ' || (self.is_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut units) {
                        write!(self.out, "\\u{unit:04x}").expect("a String takes every text");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn float(number: f64) -> String {
    match number {
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        number if number.is_nan() => "NaN".into(),
        number => python::float(number),
    }
}

fn key_of(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => python::to_str(key),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number if key.is_integer() => python::to_str(key),
        ValueKind::Number => Ok(float(f64::try_from(key.clone())?)),
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("tojson of a key that is {kind}"))),
    }
}
