//! Functions and filters of templates: those that transformers adds, and those that stand in for operators
//! ([`super::source`]).

use super::limits::PROMPT_BYTES_MAX;
use super::python;
use minijinja::value::{DynObject, Kwargs, ObjectRepr, Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::fmt;

/// Deepest nesting of a value in a variable. More than the 128 of a JSON document, less than what a stack holds.
const DEPTH_MAX: usize = 256;
/// Steps that an item of a copied list takes.
const VISIT_STEPS: u64 = 4;
/// Most bytes in a text that a template repeats.
const REPEATED_BYTES_MAX: usize = PROMPT_BYTES_MAX;
/// Widest indent.
const INDENT_MAX: i64 = 1 << 16;
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
    environment.add_function("__mul", product);
    environment
        .add_filter("__compared", |state: &mut State<'_, '_>, value: Value| compared(state, &value).map(|()| value));
    environment.add_filter("__searched", searched);
    environment.add_filter("__key", key);
    add_comparisons(environment);
    environment.add_function("__format", format);
    environment.add_filter("format", formatted);
    environment.add_filter("indent", indent);
    environment.add_filter("__keep", |state: &mut State<'_, '_>, value: Value| keep(state, value, true));
    environment.add_filter("__hold", |state: &mut State<'_, '_>, value: Value| keep(state, value, false));
    environment.add_filter("__each", |value: Value| iterable(&value).map(|()| value));
    environment.add_filter("int", to_int);
    environment.add_filter("float", to_float);
    environment.add_test("iterable", |value: &Value| iterable(value).is_ok());
    environment.add_filter("list", |state: &mut State<'_, '_>, value: &Value| {
        iterable(value)?;
        let items = value.try_iter()?.checked().map(|item| state.consume_fuel(1).and(item));
        items.collect::<Result<Vec<Value>, Error>>()
    });
    // Strings and mappings are sequences in Python.
    environment.add_test("sequence", |value: &Value| value.is_undefined() || value.len().is_some());
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment.add_filter("tojson", |state: &mut State<'_, '_>, value: &Value, args: Rest<ValueOrKwargs>| {
        super::json::tojson(state, value, &args.into_values())
    });
    environment.add_filter("string", |state: &mut State<'_, '_>, value: &Value| {
        let mut out = String::new();
        write(state, &mut out, value).map(|()| out)
    });
    environment.add_filter("escape", escape);
    environment.add_filter("e", escape);
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
fn concat(state: &mut State<'_, '_>, values: Rest<Value>) -> Result<String, Error> {
    let mut out = String::new();
    for value in values.iter() {
        write(state, &mut out, value)?;
    }
    Ok(out)
}

/// Writes a value as a string. Containers take as many steps as when minijinja prints them: one for four bytes.
fn write(state: &State<'_, '_>, out: &mut String, value: &Value) -> Result<(), Error> {
    let before = out.len();
    python::write_str(out, value)?;
    if value.as_object().is_some() { state.consume_fuel((out.len() - before) as u64 / 4) } else { Ok(()) }
}

/// `a * b * c`.
fn product(state: &mut State<'_, '_>, factors: Rest<Value>) -> Result<Value, Error> {
    let mut factors = factors.0.into_iter();
    let first = factors.next().unwrap_or_default();
    factors.try_fold(first, |product, factor| multiply(state, &product, &factor))
}

/// `'a' % b`.
fn format(state: &mut State<'_, '_>, text: &Value, values: &Value) -> Result<Value, Error> {
    let mut args = vec![text.clone()];
    match values.is_tuple() {
        true => args.extend(values.try_iter()?),
        false => args.push(values.clone()),
    }
    state.apply_filter("format", &args)
}

/// `text|format(value, …)`, where widths and precisions make no text that is longer than a prompt.
fn formatted(state: &mut State<'_, '_>, text: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let numbers = |field: &str| {
        let spec = field.strip_prefix('(').and_then(|key| key.split_once(')')).map_or(field, |(_, spec)| spec);
        let end = spec.find(|c: char| !c.is_ascii_digit() && !"#-+ .".contains(c)).unwrap_or(spec.len());
        let digits = spec[..end].split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        digits.fold(0usize, |sum, digits| sum.saturating_add(digits.parse().unwrap_or(usize::MAX)))
    };
    let fields = text.as_str().unwrap_or_default().split('%').skip(1);
    if fields.fold(0usize, |sum, field| sum.saturating_add(numbers(field))) > PROMPT_BYTES_MAX {
        return Err(python::too_long());
    }
    minijinja::filters::format(state, text, args)
}

/// `value|indent(width=4, first=False, blank=False)`.
fn indent(value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let (width, first, blank, named) = from_args::<(Option<&Value>, Option<bool>, Option<bool>, Kwargs)>(&args)?;
    let width = width.cloned().or(named.get("width")?);
    let first = first.or(named.get("first")?).unwrap_or(false);
    let blank = blank.or(named.get("blank")?).unwrap_or(false);
    named.assert_all_used()?;
    let indent = match width.as_ref().map(|width| (width.as_str(), width.as_i64())) {
        None => " ".repeat(4),
        Some((Some(text), _)) => text.to_owned(),
        Some((_, Some(width))) if width < INDENT_MAX => " ".repeat(width.max(0) as usize),
        Some(_) => return Err(failed(format!("indent takes a string, or a number up to {INDENT_MAX}"))),
    };
    let mut out = String::new();
    for (index, line) in python::lines(&(python::to_str(value)? + "\n"), false).into_iter().enumerate() {
        out.push_str(if index > 0 { "\n" } else { "" });
        if if index > 0 { blank || !line.is_empty() } else { first } {
            out.push_str(&indent);
        }
        out.push_str(line);
        if out.len() > PROMPT_BYTES_MAX {
            return Err(python::too_long());
        }
    }
    Ok(out)
}

fn multiply(state: &mut State<'_, '_>, a: &Value, b: &Value) -> Result<Value, Error> {
    let number = |value: &Value| match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        _ => value.clone(),
    };
    let (a, b) = (&number(a), &number(b));
    if a.is_number() {
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
    state.consume_fuel((items.len() as u64).saturating_mul(count as u64).saturating_mul(VISIT_STEPS))?;
    let items: Vec<Value> = (0..if items.is_empty() { 0 } else { count }).flat_map(|_| items.iter().cloned()).collect();
    Ok(if repeated.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) })
}

/// Charges for a comparison with a value: steps for each of its parts, and one for 64 bytes of a text.
pub(super) fn compared(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return state.consume_fuel(text.len() as u64 / 64);
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    for (key, item) in object.try_iter_pairs().into_iter().flatten() {
        state.consume_fuel(VISIT_STEPS)?;
        compared(state, &key)?;
        compared(state, &item)?;
    }
    Ok(())
}

/// The right operand of `in`, with a charge. For a mapping its keys: a lookup would hash all of the left operand.
fn searched(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let is_map = value.as_object().is_some_and(|object| object.repr() == ObjectRepr::Map);
    let value = if is_map { Value::from(value.try_iter()?.collect::<Vec<Value>>()) } else { value };
    compared(state, &value).map(|()| value)
}

/// A subscript, with a charge. Lists and mappings have no hash in Python and find nothing.
fn key(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    compared(state, &value)?;
    Ok(if value.as_object().is_some() && !value.is_tuple() { Value::UNDEFINED } else { value })
}

/// Tests and filters that compare, with a charge.
fn add_comparisons(environment: &mut Environment<'static>) {
    use minijinja::filters::{dictsort, groupby, max, min, sort, unique};
    use std::cmp::Ordering;
    type Accepts = fn(Ordering) -> bool;
    let tests: [(&[&'static str], Accepts); 4] = [
        (&["lt", "lessthan", "<"], Ordering::is_lt),
        (&["le", "<="], Ordering::is_le),
        (&["gt", "greaterthan", ">"], Ordering::is_gt),
        (&["ge", ">="], Ordering::is_ge),
    ];
    for (names, accepts) in tests {
        for name in names {
            environment.add_test(*name, move |state: &mut State<'_, '_>, a: &Value, b: &Value| {
                compared(state, b).map(|()| accepts(a.cmp(b)))
            });
        }
    }
    for (names, is_equal) in [(["eq", "equalto", "=="].as_slice(), true), (&["ne", "!="], false)] {
        for name in names {
            environment.add_test(*name, move |state: &mut State<'_, '_>, a: &Value, b: &Value| {
                compared(state, b).map(|()| (a == b) == is_equal)
            });
        }
    }
    let is_in = Value::from_function(minijinja::tests::is_in);
    environment.add_test("in", move |state: &mut State<'_, '_>, value: &Value, container: &Value| {
        compared(state, container)?;
        is_in.call(state, &[value.clone(), container.clone()])
    });
    let filters = [
        ("sort", Value::from_function(sort)),
        ("unique", Value::from_function(unique)),
        ("groupby", Value::from_function(groupby)),
        ("dictsort", Value::from_function(dictsort)),
        ("min", Value::from_function(min)),
        ("max", Value::from_function(max)),
    ];
    for (name, filter) in filters {
        environment.add_filter(name, move |state: &mut State<'_, '_>, value: &Value, args: Rest<ValueOrKwargs>| {
            // As often as an item is compared when a list is sorted.
            for _ in 0..value.len().unwrap_or(0).max(1).ilog2() + 1 {
                compared(state, value)?;
            }
            let args: Vec<Value> = std::iter::once(value.clone()).chain(args.into_values()).collect();
            filter.call(state, &args)
        });
    }
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
    state.consume_fuel(VISIT_STEPS)?;
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

/// Fails for what Python does not iterate over.
fn iterable(value: &Value) -> Result<(), Error> {
    let is_iterable = match value.kind() {
        ValueKind::None => false,
        // Undefined has no items.
        _ => value.try_iter().is_ok(),
    };
    if is_iterable { Ok(()) } else { Err(failed(format!("{} is not iterable", value.kind()))) }
}

/// `value|int(default=0, base=10)`: of a string, also the whole part of a float.
fn to_int(value: &Value, default: Option<Value>, base: Option<u32>, named: Kwargs) -> Result<Value, Error> {
    let default = default.or(named.get("default")?).unwrap_or_else(|| Value::from(0));
    let base = base.or(named.get("base")?).unwrap_or(10);
    named.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(failed(format!("base {base} of int, which takes 2 to 36")));
    }
    let whole = |number: f64| number.is_finite().then(|| Value::from(number.trunc() as i128));
    let converted = match value.as_str() {
        Some(text) => {
            let text = text.trim_matches(python::is_space).replace('_', "");
            let whole = || text.parse::<f64>().ok().filter(|_| base == 10).and_then(whole);
            i128::from_str_radix(&text, base).ok().map(Value::from).or_else(whole)
        }
        None => match i128::try_from(value.clone()) {
            Ok(number) if !value.is_undefined() => Some(Value::from(number)),
            _ => f64::try_from(value.clone()).ok().and_then(whole),
        },
    };
    Ok(converted.unwrap_or(default))
}

/// `value|float(default=0.0)`.
fn to_float(value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = default.or(named.get("default")?).unwrap_or_else(|| Value::from(0.0));
    named.assert_all_used()?;
    let converted = match value.as_str() {
        Some(text) => text.trim_matches(python::is_space).parse().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(converted.map_or(default, Value::from))
}

/// `value|escape`: with the entities of Python's markupsafe.
fn escape(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    for c in python::to_str(value)?.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    Ok(out)
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
    iterable(value)?;
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
        write(state, &mut out, &item)?;
    }
    Ok(out)
}
