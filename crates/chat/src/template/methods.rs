//! Methods of Python's `str`, `dict` and `list` that templates call. Those that change a value are none of them: the
//! sandbox of transformers has none either.

use super::limits::PROMPT_BYTES_MAX;
use super::python;
use minijinja::value::{Kwargs, ObjectRepr, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

type Returned = Result<Value, Error>;

/// Calls a method that minijinja does not know.
pub(super) fn call(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Returned {
    if let Some(text) = value.as_str() {
        return on_text(state, text, name, args);
    }
    match value.as_object().map(|object| object.repr()) {
        Some(ObjectRepr::Map) if !value.as_object().is_some_and(python::is_namespace) => on_map(value, name, args),
        Some(ObjectRepr::Seq | ObjectRepr::Iterable) => on_list(state, value, name, args),
        _ => Err(unknown()),
    }
}

fn unknown() -> Error {
    Error::from(ErrorKind::UnknownMethod)
}

fn wrong(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

fn on_map(map: &Value, name: &str, args: &[Value]) -> Returned {
    let object = map.as_object().ok_or_else(unknown)?;
    let pairs = || object.try_iter_pairs().into_iter().flatten();
    match name {
        "get" => {
            let (key, default) = from_args::<(&Value, Option<&Value>)>(args)?;
            if key.as_object().is_some() && !key.is_tuple() {
                return Err(wrong(format!("{} cannot be a key", key.kind())));
            }
            Ok(object.get_value(key).unwrap_or_else(|| default.cloned().unwrap_or_else(|| Value::from(()))))
        }
        "items" => {
            from_args::<()>(args)?;
            Ok(pairs().map(|(key, value)| Value::from(Tuple::from(vec![key, value]))).collect())
        }
        "keys" => {
            from_args::<()>(args)?;
            Ok(pairs().map(|(key, _)| key).collect())
        }
        "values" => {
            from_args::<()>(args)?;
            Ok(pairs().map(|(_, value)| value).collect())
        }
        "copy" => {
            from_args::<()>(args)?;
            Ok(map.clone())
        }
        _ => Err(unknown()),
    }
}

fn on_list(state: &mut State<'_, '_>, list: &Value, name: &str, args: &[Value]) -> Returned {
    match name {
        "index" | "count" => {
            let (wanted,) = from_args::<(&Value,)>(args)?;
            super::functions::compared(state, list)?;
            let mut count = 0;
            for (index, item) in list.try_iter()?.checked().enumerate() {
                state.consume_fuel(1)?;
                if item? == *wanted {
                    if name == "index" {
                        return Ok(Value::from(index));
                    }
                    count += 1;
                }
            }
            if name == "index" { Err(wrong("the value is not in the list")) } else { Ok(Value::from(count)) }
        }
        "copy" => {
            from_args::<()>(args)?;
            Ok(list.clone())
        }
        _ => Err(unknown()),
    }
}

fn on_text(state: &mut State<'_, '_>, text: &str, name: &str, args: &[Value]) -> Returned {
    let no_args = || from_args::<()>(args);
    let all = |test: fn(char) -> bool| -> Returned {
        from_args::<()>(args)?;
        Ok(Value::from(!text.is_empty() && text.chars().all(test)))
    };
    Ok(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,) = from_args::<(Option<&str>,)>(args)?;
            let is_cut = |c: char| chars.map_or_else(|| python::is_space(c), |chars| chars.contains(c));
            let text = if name == "rstrip" { text } else { text.trim_start_matches(is_cut) };
            Value::from(if name == "lstrip" { text } else { text.trim_end_matches(is_cut) })
        }
        "startswith" | "endswith" => {
            let (wanted, start, end) = from_args::<(&Value, Option<i64>, Option<i64>)>(args)?;
            let text = part(text, start, end).map_or("", |(_, part)| part);
            let matches = |wanted: &Value| match wanted.as_str() {
                Some(wanted) => {
                    Ok(if name == "startswith" { text.starts_with(wanted) } else { text.ends_with(wanted) })
                }
                None => Err(wrong(format!("{name} takes a string or a tuple of them, not {}", wanted.kind()))),
            };
            if wanted.is_tuple() {
                let mut found = false;
                for wanted in wanted.try_iter()? {
                    found |= matches(&wanted)?;
                }
                Value::from(found)
            } else {
                Value::from(matches(wanted)?)
            }
        }
        "upper" => no_args().map(|()| Value::from(text.to_uppercase()))?,
        "lower" | "casefold" => no_args().map(|()| Value::from(text.to_lowercase()))?,
        "title" => no_args().map(|()| Value::from(title(text)))?,
        "capitalize" => no_args().map(|()| {
            let mut chars = text.chars();
            let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
            Value::from(first + &chars.as_str().to_lowercase())
        })?,
        "swapcase" => no_args().map(|()| {
            let swap =
                |c: char| if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() };
            Value::from(text.chars().map(swap).collect::<String>())
        })?,
        "replace" => {
            let (args, named) = from_args::<(&[Value], Kwargs)>(args)?;
            let (from, to, count) = from_args::<(&str, &str, Option<i64>)>(args)?;
            let count = count.or(named.get("count")?).unwrap_or(-1);
            named.assert_all_used()?;
            replace(state, text, from, to, usize::try_from(count).unwrap_or(usize::MAX))?
        }
        "split" | "rsplit" => {
            let (args, named) = from_args::<(&[Value], Kwargs)>(args)?;
            let (separator, count) = from_args::<(Option<&str>, Option<i64>)>(args)?;
            let (named_separator, named_count) = (named.get::<Option<String>>("sep")?, named.get("maxsplit")?);
            named.assert_all_used()?;
            let count = usize::try_from(count.or(named_count).unwrap_or(-1)).unwrap_or(usize::MAX);
            split(state, text, separator.or(named_separator.as_deref()), count, name == "rsplit")?
        }
        "splitlines" => {
            let (keeps_ends,) = from_args::<(Option<bool>,)>(args)?;
            lines(state, text, keeps_ends.unwrap_or(false))?
        }
        "partition" | "rpartition" => {
            let (separator,) = from_args::<(&str,)>(args)?;
            if separator.is_empty() {
                return Err(wrong("empty separator"));
            }
            let halves = if name == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match halves {
                Some((before, after)) => [before, separator, after],
                None if name == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from).to_vec()))
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (wanted, start, end) = from_args::<(&str, Option<i64>, Option<i64>)>(args)?;
            let found = part(text, start, end).and_then(|(skipped, part)| {
                let at = if name.starts_with('r') { part.rfind(wanted) } else { part.find(wanted) }?;
                Some(skipped + part[..at].chars().count())
            });
            match found {
                Some(at) => Value::from(at),
                None if name.ends_with("find") => Value::from(-1),
                None => return Err(wrong("substring not found")),
            }
        }
        "count" => {
            let (wanted, start, end) = from_args::<(&str, Option<i64>, Option<i64>)>(args)?;
            let part = part(text, start, end).map(|(_, part)| part);
            Value::from(part.map_or(0, |part| part.matches(wanted).count()))
        }
        "join" => {
            let (items,) = from_args::<(&Value,)>(args)?;
            join(state, text, items)?
        }
        "removeprefix" => {
            let (prefix,) = from_args::<(&str,)>(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,) = from_args::<(&str,)>(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "ljust" | "rjust" | "center" | "zfill" => pad(state, text, name, args)?,
        "format" => format(text, args)?,
        "isdigit" | "isdecimal" => all(|c| c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric()))?,
        "isnumeric" => all(char::is_numeric)?,
        "isalpha" => all(char::is_alphabetic)?,
        "isalnum" => all(char::is_alphanumeric)?,
        "isspace" => all(python::is_space)?,
        "isascii" => no_args().map(|()| Value::from(text.is_ascii()))?,
        "isupper" => no_args()
            .map(|()| Value::from(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)))?,
        "islower" => no_args()
            .map(|()| Value::from(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)))?,
        _ => return Err(unknown()),
    })
}

/// `text[start:end]` with the number of characters before it; none if it starts behind the end.
fn part(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(usize, &str)> {
    if start.is_none() && end.is_none() {
        return Some((0, text));
    }
    let len = text.chars().count();
    let at = |bound: i64| {
        let size = usize::try_from(bound.unsigned_abs()).unwrap_or(usize::MAX);
        if bound < 0 { len.saturating_sub(size) } else { size }
    };
    let (start, end) = (at(start.unwrap_or(0)), end.map_or(len, at).min(len));
    if start > end {
        return None;
    }
    let byte = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    Some((start, &text[byte(start)..byte(end)]))
}

fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        if in_word {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        in_word = c.is_alphabetic();
    }
    out
}

/// Fails before a text grows beyond a prompt.
fn check_len(len: usize) -> Result<(), Error> {
    if len > PROMPT_BYTES_MAX { Err(python::too_long()) } else { Ok(()) }
}

fn replace(state: &mut State<'_, '_>, text: &str, from: &str, to: &str, count: usize) -> Returned {
    let matches = text.matches(from).take(count).count();
    state.consume_fuel(matches as u64 / 8)?;
    check_len(text.len().saturating_add(matches.saturating_mul(to.len().saturating_sub(from.len()))))?;
    Ok(Value::from(text.replacen(from, to, matches)))
}

fn split(state: &mut State<'_, '_>, text: &str, separator: Option<&str>, count: usize, from_end: bool) -> Returned {
    let pieces = count.saturating_add(1);
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(wrong("empty separator")),
        Some(separator) if from_end => text.rsplitn(pieces, separator).collect(),
        Some(separator) => text.splitn(pieces, separator).collect(),
        None => split_words(text, count, from_end),
    };
    if from_end {
        parts.reverse();
    }
    state.consume_fuel(parts.len() as u64)?;
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Words between white space, from the end if asked: the last one found is the rest.
fn split_words(mut text: &str, count: usize, from_end: bool) -> Vec<&str> {
    let mut words = Vec::new();
    loop {
        text =
            if from_end { text.trim_end_matches(python::is_space) } else { text.trim_start_matches(python::is_space) };
        if text.is_empty() {
            return words;
        }
        if words.len() == count {
            words.push(text);
            return words;
        }
        if from_end {
            let start =
                text.rfind(python::is_space).map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8));
            words.push(&text[start..]);
            text = &text[..start];
        } else {
            let end = text.find(python::is_space).unwrap_or(text.len());
            words.push(&text[..end]);
            text = &text[end..];
        }
    }
}

fn lines(state: &mut State<'_, '_>, text: &str, keeps_ends: bool) -> Returned {
    let lines = python::lines(text, keeps_ends);
    state.consume_fuel(lines.len() as u64)?;
    Ok(lines.into_iter().map(Value::from).collect())
}

fn join(state: &mut State<'_, '_>, separator: &str, items: &Value) -> Returned {
    let mut out = String::new();
    for (index, item) in items.try_iter()?.checked().enumerate() {
        let item = item?;
        let text = item.as_str();
        let text = text.ok_or_else(|| wrong(format!("join: item {index} is {}, not a string", item.kind())))?;
        state.consume_fuel(1)?;
        check_len(out.len() + separator.len() + text.len())?;
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
    }
    Ok(Value::from(out))
}

fn pad(state: &mut State<'_, '_>, text: &str, name: &str, args: &[Value]) -> Returned {
    let (width, fill) = from_args::<(i64, Option<&str>)>(args)?;
    let mut fill = fill.unwrap_or(if name == "zfill" { "0" } else { " " }).chars();
    let (Some(fill), None) = (fill.next(), fill.next()) else {
        return Err(wrong("the fill character must be exactly one character long"));
    };
    let len = text.chars().count();
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(len);
    check_len(text.len().saturating_add(missing.saturating_mul(4)))?;
    state.consume_fuel(missing as u64 / 64)?;
    let filled = |count: usize| fill.to_string().repeat(count);
    Ok(Value::from(match name {
        "ljust" => format!("{text}{}", filled(missing)),
        "center" => {
            // Python puts the odd one on the left if the width is odd.
            let left = missing / 2 + (missing & width as usize & 1);
            format!("{}{text}{}", filled(left), filled(missing - left))
        }
        "zfill" if text.starts_with(['+', '-']) => format!("{}{}{}", &text[..1], filled(missing), &text[1..]),
        _ => format!("{}{text}", filled(missing)),
    }))
}

/// `str.format` with `{}`, `{0}` and `{name}`: attributes, conversions and formats of numbers are rejected.
fn format(text: &str, args: &[Value]) -> Returned {
    let (positional, named) = from_args::<(&[Value], Kwargs)>(args)?;
    let (mut out, mut rest, mut next) = (String::new(), text, 0);
    while let Some(at) = rest.find(['{', '}']) {
        check_len(out.len() + at)?;
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = tail;
            continue;
        }
        let (field, tail) =
            rest.split_once('}').filter(|_| brace == "{").ok_or_else(|| wrong("a single brace in format"))?;
        rest = tail;
        let value = if field.is_empty() || field.bytes().all(|byte| byte.is_ascii_digit()) {
            let index = if field.is_empty() { next } else { field.parse().unwrap_or(usize::MAX) };
            next += 1;
            positional.get(index).cloned()
        } else if named.has(field) {
            Some(named.get(field)?)
        } else {
            None
        };
        let value = value.ok_or_else(|| wrong(format!("format has no value for {{{field}}}")))?;
        if value.kind() == ValueKind::Undefined {
            return Err(wrong(format!("the value for {{{field}}} is undefined")));
        }
        python::write_str(&mut out, &value)?;
    }
    check_len(out.len() + rest.len())?;
    out.push_str(rest);
    Ok(Value::from(out))
}
