//! Functions and filters of templates: those that transformers adds, and those that stand in for operators
//! ([`super::source`]).

use super::python;
use minijinja::value::{DynObject, Kwargs, ObjectRepr, Rest, Tuple, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::fmt;

/// Deepest nesting of a value in a variable. More than the 128 of a JSON document, less than what a stack holds.
const DEPTH_MAX: usize = 256;
/// Most bytes in a text that a template repeats.
const REPEATED_BYTES_MAX: usize = super::PROMPT_BYTES_MAX;
/// Largest bound of a range: any length above 100,000 is an error anyway.
const RANGE_MAX: i64 = 1 << 40;

/// Text of `raise_exception`: a message to the client, which is shown alone.
#[derive(Debug)]
pub(super) struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub(super) fn add_to(environment: &mut Environment<'static>) {
    // Names that minijinja has and jinja2 has not: a template that uses them fails there too.
    ["split", "lines", "bool", "zip", "chain", "pprint"].iter().for_each(|name| environment.remove_filter(name));
    ["startingwith", "endingwith", "int"].iter().for_each(|name| environment.remove_test(name));
    environment.remove_global("debug");

    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", super::time::strftime_now);
    environment.add_function("range", range);
    environment.add_function("namespace", namespace);
    environment.add_function("__concat", concat);
    environment.add_function("__mul", multiply);
    environment.add_filter("__keep", |state: &mut State<'_, '_>, value: Value| keep(state, value, true));
    environment.add_filter("__hold", |state: &mut State<'_, '_>, value: Value| keep(state, value, false));
    environment.add_filter("tojson", |state: &mut State<'_, '_>, value: &Value, args: Rest<ValueOrKwargs>| {
        super::json::tojson(state, value, &args.into_values())
    });
    environment.add_filter("string", |value: &Value| python::to_str(value));
    environment.add_filter("trim", trim);
    environment.add_filter("join", join);
}

fn failed(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let raised = Raised(python::to_str(message)?);
    Err(failed("raise_exception").with_source(raised))
}

fn range(state: &mut State<'_, '_>, args: Rest<i64>) -> Result<Value, Error> {
    if let Some(bound) = args.iter().find(|bound| bound.abs() > RANGE_MAX) {
        return Err(failed(format!("{bound} is too large for range")));
    }
    let args: Vec<Value> = args.iter().copied().map(Value::from).collect();
    Value::from_function(minijinja::functions::range).call(state, &args)
}

fn namespace(state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let (given, named) = from_args::<(Option<Value>, Kwargs)>(&args)?;
    let mut pairs = Vec::new();
    for (key, value) in
        given.as_ref().and_then(Value::as_object).and_then(DynObject::try_iter_pairs).into_iter().flatten()
    {
        pairs.push((key, keep(state, value, true)?));
    }
    for name in named.args() {
        pairs.push((Value::from(name), keep(state, named.get(name)?, true)?));
    }
    Value::from_function(minijinja::functions::namespace).call(state, &[Value::from_pairs(pairs)])
}

/// `a ~ b ~ c`.
fn concat(values: Rest<Value>) -> Result<String, Error> {
    let mut out = String::new();
    for value in values.iter() {
        python::write_str(&mut out, value)?;
    }
    Ok(out)
}

/// `a * b`.
fn multiply(state: &mut State<'_, '_>, a: &Value, b: &Value) -> Result<Value, Error> {
    if a.is_number() || a.kind() == minijinja::value::ValueKind::Bool {
        let is_float = |value: &Value| value.is_number() && !value.is_integer();
        if let (Ok(x), Ok(y), false) =
            (i128::try_from(a.clone()), i128::try_from(b.clone()), is_float(a) || is_float(b))
        {
            return x.checked_mul(y).map(Value::from).ok_or_else(|| failed("a product is too large"));
        }
        if let (Ok(x), Ok(y)) = (f64::try_from(a.clone()), f64::try_from(b.clone())) {
            return Ok(Value::from(x * y));
        }
    }
    let (repeated, count) = if i128::try_from(b.clone()).is_ok() { (a, b) } else { (b, a) };
    let wrong = || failed(format!("tried to use * operator on unsupported types {} and {}", a.kind(), b.kind()));
    let count = usize::try_from(i128::try_from(count.clone()).map_err(|_| wrong())?.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = repeated.as_str() {
        let len = text.len().saturating_mul(count);
        if len > REPEATED_BYTES_MAX {
            return Err(failed(format!("a repeated text has {len} bytes, of which {REPEATED_BYTES_MAX} are allowed")));
        }
        return Ok(Value::from(text.repeat(count)));
    }
    let is_list = |object: &&DynObject| matches!(object.repr(), ObjectRepr::Seq | ObjectRepr::Iterable);
    repeated.as_object().filter(is_list).ok_or_else(wrong)?;
    let items: Vec<Value> = repeated.try_iter()?.checked().collect::<Result<_, _>>()?;
    state.consume_fuel((items.len() as u64).saturating_mul(count as u64))?;
    let items: Vec<Value> = (0..if items.is_empty() { 0 } else { count }).flat_map(|_| items.iter().cloned()).collect();
    Ok(if repeated.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) })
}

/// A value for a variable: its lazy sequences are lists, and it is not nested too deep.
fn keep(state: &mut State<'_, '_>, value: Value, with_namespaces: bool) -> Result<Value, Error> {
    Ok(settle(state, &value, DEPTH_MAX, with_namespaces)?.unwrap_or(value))
}

/// The value that replaces another, if it differs.
fn settle(
    state: &mut State<'_, '_>,
    value: &Value,
    depth: usize,
    with_namespaces: bool,
) -> Result<Option<Value>, Error> {
    let Some(object) = value.as_object() else { return Ok(None) };
    // Each visit is charged: values that hold one another twice have more paths than parts.
    state.consume_fuel(1)?;
    if depth == 0 {
        return Err(failed(format!("a value is nested more than {DEPTH_MAX} deep")));
    }
    if python::is_namespace(object) && !with_namespaces {
        return Err(failed("a namespace cannot hold a namespace"));
    }
    match object.repr() {
        ObjectRepr::Map => {
            let mut changes = Vec::new();
            for (key, item) in object.try_iter_pairs().into_iter().flatten() {
                if let Some(settled) = settle(state, &item, depth - 1, with_namespaces)? {
                    changes.push((key, settled));
                }
            }
            if changes.is_empty() || python::is_namespace(object) {
                return Ok(None);
            }
            let pairs = object.try_iter_pairs().into_iter().flatten();
            Ok(Some(Value::from_pairs(pairs.chain(changes))))
        }
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            let mut is_changed = object.downcast_ref::<Vec<Value>>().is_none() && !value.is_tuple();
            let mut items = Vec::new();
            for item in value.try_iter()?.checked() {
                let item = item?;
                if is_changed {
                    state.consume_fuel(1)?;
                }
                let settled = settle(state, &item, depth - 1, with_namespaces)?;
                is_changed |= settled.is_some();
                items.push(settled.unwrap_or(item));
            }
            Ok(is_changed.then(|| if value.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) }))
        }
        _ => Ok(None),
    }
}

fn trim(value: &Value, chars: Option<&str>) -> Result<String, Error> {
    let text = python::to_str(value)?;
    Ok(match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)),
        None => text.trim_matches(python::is_space),
    }
    .to_owned())
}

fn join(state: &mut State<'_, '_>, value: &Value, separator: Option<&Value>, named: Kwargs) -> Result<String, Error> {
    let named_separator: Option<Value> = named.get("d")?;
    let separator = separator.or(named_separator.as_ref()).map_or(Ok(String::new()), python::to_str)?;
    let attribute: Option<Value> = named.get("attribute")?;
    named.assert_all_used()?;
    let mut out = String::new();
    for (index, item) in value.try_iter()?.checked().enumerate() {
        state.consume_fuel(1)?;
        let item = match (&attribute, item?) {
            (Some(attribute), item) => item.get_item(attribute)?,
            (None, item) => item,
        };
        if index > 0 {
            out.push_str(&separator);
        }
        python::write_str(&mut out, &item)?;
    }
    Ok(out)
}
