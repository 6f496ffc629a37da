//! Brings a template from the dialect of transformers to that of minijinja, and keeps what minijinja does not count
//! within bounds.
//!
//! - `{% generation %}` becomes `{% with %}`: the body has its own scope and the same text.
//! - `a ~ b` becomes `__concat(a, b)`, so that values print as Python prints them.
//! - `a * b` becomes `__mul(a, b)`, because minijinja repeats lists lazily and charges no fuel for it.
//! - `'a' % b` becomes `__format('a', b)`, because minijinja has no formats of this form.
//! - `{% set x = a %}` becomes `{% set x = (a)|__keep %}`, which turns lazy sequences into lists and bounds how deep a
//!   value is nested: both would otherwise grow without a charge. For `{% set namespace.x = a %}` it is `__hold`, which
//!   also rejects namespaces: one that held itself would never be freed.
//! - `{% for x in a %}` becomes `{% for x in (a)|__each %}`, which fails for `none` as Python does.
//! - `a == b` becomes `a == (b)|__compared`, and other comparisons alike, unless `b` is a constant: minijinja charges
//!   for the items of a list, but not for what they hold.
//! - Signs, escapes and the end of a line behind `{% raw %}` become those of minijinja with the same meaning.
//!
//! Lines keep their numbers. Syntax errors stay for minijinja to report.

use std::borrow::Cow;

/// Most tokens in one tag: minijinja descends one stack frame for each.
const TAG_TOKENS_MAX: usize = 1024;
/// Deepest nesting of brackets in one tag.
const BRACKETS_MAX: usize = 24;
/// Longest line: minijinja counts columns in 16 bits.
const LINE_BYTES_MAX: usize = 65_000;
/// Most `elif` of the statements that are open: minijinja descends a few stack frames for each.
const ELIFS_MAX: usize = 256;

/// A limit that the source exceeds.
pub(super) struct TooComplex {
    pub line: usize,
    pub what: String,
}

#[derive(Clone, Copy, PartialEq)]
enum TokenKind {
    Name,
    Text,
    Number,
    Operator,
    Open,
    Close,
}

#[derive(Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    start: usize,
    kind: TokenKind,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The source as minijinja takes it.
pub(super) fn translate(source: &str) -> Result<String, TooComplex> {
    let source = normalize_newlines(source);
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let (mut at, mut elifs) = (0, Vec::new());
    while let Some(open) = find_tag(&source, at) {
        out.push_str(&source[at..open]);
        let rest = &source[open..];
        if rest.starts_with("{#") {
            let end = rest.find("#}").map_or(source.len(), |end| open + end + 2);
            out.push_str(&source[open..end]);
            at = end;
            continue;
        }
        let (tokens, end) = tokens(&source, open + 2);
        let failed = |what| TooComplex { line: source[..open].matches('\n').count() + 1, what };
        if tokens.len() > TAG_TOKENS_MAX {
            return Err(failed(format!("a tag of {} tokens, of which {TAG_TOKENS_MAX} are allowed", tokens.len())));
        }
        at = end;
        if rest.starts_with("{%") {
            let names = tokens.iter().skip_while(|token| token.text == "-" || token.text == "+");
            match names.map(|token| token.text).next() {
                Some("raw") => {
                    // jinja2 keeps the end of the line behind `{% raw %}` and minijinja removes it, without a sign.
                    let sign = matches!(tokens.last(), Some(last) if last.text == "raw");
                    let tag_end = if sign { end - 2 } else { end };
                    out.push_str(&source[open..tag_end]);
                    out.push_str(if sign { "+" } else { "" });
                    at = end_of_raw(&source, end);
                    out.push_str(&source[tag_end..at]);
                    continue;
                }
                Some("if") => elifs.push(0),
                Some("elif") => {
                    if let Some(count) = elifs.last_mut() {
                        *count += 1;
                    }
                    if elifs.iter().sum::<usize>() > ELIFS_MAX {
                        return Err(failed(format!("more than {ELIFS_MAX} elif in one another")));
                    }
                }
                Some("endif") => drop(elifs.pop()),
                _ => {}
            }
        }
        rewrite(&source, (open, end), &tokens, &mut out).map_err(failed)?;
    }
    out.push_str(&source[at..]);
    match out.split('\n').position(|line| line.len() > LINE_BYTES_MAX) {
        Some(line) => Err(TooComplex { line: line + 1, what: format!("more than {LINE_BYTES_MAX} bytes in a line") }),
        None => Ok(out),
    }
}

/// Python reads every end of a line as `\n`.
fn normalize_newlines(source: &str) -> Cow<'_, str> {
    if source.contains('\r') { source.replace("\r\n", "\n").replace('\r', "\n").into() } else { source.into() }
}

fn find_tag(source: &str, mut at: usize) -> Option<usize> {
    loop {
        at += source[at..].find('{')?;
        if matches!(source.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')) {
            return Some(at);
        }
        at += 1;
    }
}

/// The end of the tag that ends a raw block.
fn end_of_raw(source: &str, mut at: usize) -> usize {
    while let Some(open) = source[at..].find("{%") {
        at += open + 2;
        let tag = source[at..].trim_start_matches(['-', '+']).trim_start();
        if let Some(tail) = tag.strip_prefix("endraw") {
            let tail = tail.trim_start().trim_start_matches(['-', '+']);
            if tail.starts_with("%}") {
                return source.len() - tail.len() + 2;
            }
        }
    }
    source.len()
}

/// The tokens of a tag from behind its opening, and where the tag ends.
fn tokens(source: &str, mut at: usize) -> (Vec<Token<'_>>, usize) {
    let (mut found, mut depth) = (Vec::new(), 0_usize);
    let bytes = source.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        let rest = &source[at..];
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if depth == 0 && (rest.starts_with("%}") || rest.starts_with("}}")) {
            return (found, at + 2);
        }
        let (kind, len) = match byte {
            b'\'' | b'"' => (TokenKind::Text, text_len(rest)),
            b'0'..=b'9' => (TokenKind::Number, number_len(rest)),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => {
                let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric() || !c.is_ascii();
                (TokenKind::Name, rest.find(|c| !is_name(c)).unwrap_or(rest.len()))
            }
            b'(' | b'[' | b'{' => {
                depth += 1;
                (TokenKind::Open, 1)
            }
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                (TokenKind::Close, 1)
            }
            _ if ["**", "//", "==", "!=", "<=", ">="].iter().any(|two| rest.starts_with(two)) => {
                (TokenKind::Operator, 2)
            }
            _ => (TokenKind::Operator, 1),
        };
        found.push(Token { text: &rest[..len], start: at, kind });
        at += len;
    }
    (found, at)
}

fn text_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == bytes[0] => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A point belongs to the number only before a digit: `1.foo` is an attribute.
fn number_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let is_part = |at: usize| match bytes[at] {
        b'.' => bytes.get(at + 1).is_some_and(u8::is_ascii_digit),
        b'+' | b'-' => matches!(bytes[at - 1], b'e' | b'E') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit),
        byte => byte == b'_' || byte.is_ascii_alphanumeric(),
    };
    (1..bytes.len()).find(|&at| !is_part(at)).unwrap_or(bytes.len())
}

/// Where the operands of the open calls start, for one level of brackets.
struct Level {
    concat_start: usize,
    mul_start: usize,
    in_concat: bool,
    in_mul: bool,
    /// Whether the open call is a product, which takes further factors, or a format.
    is_product: bool,
    /// The first token of the right operand of a comparison.
    compared: Option<usize>,
    /// Calls in one another.
    muls: usize,
}

impl Level {
    fn new(start: usize) -> Self {
        Self {
            concat_start: start,
            mul_start: start,
            in_concat: false,
            in_mul: false,
            is_product: false,
            compared: None,
            muls: 0,
        }
    }
}

/// Changes of a tag: bytes from `start` that `text` replaces.
#[derive(Default)]
struct Edits(Vec<(usize, usize, Cow<'static, str>)>);

impl Edits {
    /// Puts a text before those that were put there earlier: a later call is an outer one.
    fn open(&mut self, at: usize, text: &'static str) {
        let index = self.0.partition_point(|&(start, ..)| start < at);
        self.0.insert(index, (at, 0, text.into()));
    }

    /// Puts a text behind those that were put there earlier.
    fn put(&mut self, at: usize, len: usize, text: impl Into<Cow<'static, str>>) {
        let index = self.0.partition_point(|&(start, ..)| start <= at);
        self.0.insert(index, (at, len, text.into()));
    }

    fn close_mul(&mut self, level: &mut Level, at: usize) {
        if std::mem::take(&mut level.in_mul) {
            self.put(at, 0, ")");
        }
    }

    fn close_sum(&mut self, level: &mut Level, at: usize) {
        self.close_mul(level, at);
        if std::mem::take(&mut level.in_concat) {
            self.put(at, 0, ")");
        }
    }

    /// Ends the operands that end before a token.
    fn close(&mut self, level: &mut Level, tokens: &[Token<'_>], index: usize) {
        let Some(at) = index.checked_sub(1).map(|last| tokens[last].end()) else { return };
        self.close_sum(level, at);
        let Some(first) = level.compared.take() else { return };
        if !is_constant(&tokens[first..index]) {
            self.open(tokens[first - 1].end(), " (");
            self.put(at, 0, if tokens[first - 1].text == "in" { ")|__searched" } else { ")|__compared" });
        }
    }
}

/// Whether an operand needs no charge, or is missing.
fn is_constant(operand: &[Token<'_>]) -> bool {
    match operand {
        [] | [Token { kind: TokenKind::Text | TokenKind::Number, .. }] => true,
        [token] => CONSTANTS.contains(&token.text),
        _ => false,
    }
}

const CONSTANTS: [&str; 6] = ["true", "false", "none", "True", "False", "None"];

fn rewrite(source: &str, (open, end): (usize, usize), tokens: &[Token<'_>], out: &mut String) -> Result<(), String> {
    let is_block = source[open..].starts_with("{%");
    // The signs of whitespace are not part of the expression.
    let signs = |token: &&Token<'_>| token.text == "-" || token.text == "+";
    let tail = tokens.last().filter(|token| signs(token) && token.end() + 2 == end);
    let head = tokens.first().filter(|token| signs(token) && token.start == open + 2);
    let first = usize::from(head.is_some());
    let last = (tokens.len() - usize::from(tail.is_some())).max(first);
    let tokens = &tokens[first..last];

    let mut edits = Edits::default();
    if let ([name], true) = (tokens, is_block) {
        match name.text {
            "generation" => edits.put(name.start, name.text.len(), "with"),
            "endgeneration" => edits.put(name.start, name.text.len(), "endwith"),
            _ => {}
        }
    }
    let mut levels = vec![Level::new(tokens.first().map_or(open + 2, |token| token.start))];
    let is_set = is_block && tokens.first().is_some_and(|token| token.text == "set");
    let is_for = is_block && tokens.first().is_some_and(|token| token.text == "for");
    // The value of `set`, or the iterable of `for`.
    let (mut value_start, mut value_end) = (None, None);
    // The first token of each open subscript.
    let mut subscripts: Vec<Option<usize>> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| tokens[index]);
        let before_end = before.map_or(token.start, |before| before.end());
        let depth = levels.len();
        let level = levels.last_mut().expect("the outermost level stays");
        // A sign or star behind an operator or at the beginning belongs to its operand.
        let is_prefix = before.is_none_or(|before| {
            matches!(before.kind, TokenKind::Open | TokenKind::Operator)
                || (before.kind == TokenKind::Name && is_keyword(before.text))
        });
        match (token.kind, token.text) {
            (TokenKind::Open, _) => {
                if depth > BRACKETS_MAX {
                    return Err(format!("more than {BRACKETS_MAX} brackets in one another"));
                }
                levels.push(Level::new(token.end()));
                subscripts.push((token.text == "[" && !is_prefix).then_some(index + 1));
            }
            (TokenKind::Close, _) => {
                edits.close(level, tokens, index);
                if let Some(Some(first)) = subscripts.pop()
                    && !is_constant(&tokens[first..index])
                {
                    edits.open(tokens[first - 1].end(), " (");
                    edits.put(before_end, 0, ")|__key");
                }
                if depth > 1 {
                    levels.pop();
                }
            }
            (TokenKind::Operator, "~") => {
                edits.close_mul(level, before_end);
                if !std::mem::replace(&mut level.in_concat, true) {
                    edits.open(level.concat_start, " __concat(");
                }
                edits.put(token.start, 1, ",");
                (level.mul_start, level.muls) = (token.end(), 0);
            }
            (TokenKind::Operator, "*" | "**") if is_prefix => {
                (level.concat_start, level.mul_start) = (token.end(), token.end());
            }
            (TokenKind::Operator, "*") => {
                if level.in_mul && !level.is_product {
                    edits.close_mul(level, before_end);
                }
                level.is_product = true;
                if !std::mem::replace(&mut level.in_mul, true) {
                    edits.open(level.mul_start, " __mul(");
                    level.muls += 1;
                }
                // `a * b / c * d` is a call in a call.
                if level.muls > BRACKETS_MAX {
                    return Err(format!("more than {BRACKETS_MAX} products and quotients in turn"));
                }
                edits.put(token.start, 1, ",");
            }
            // A format of Python.
            (TokenKind::Operator, "%")
                if before.is_some_and(|before| before.kind == TokenKind::Text) && !level.in_mul =>
            {
                edits.open(level.mul_start, " __format(");
                edits.put(token.start, 1, ",");
                (level.in_mul, level.is_product, level.muls) = (true, false, level.muls + 1);
            }
            (TokenKind::Operator, "/" | "//" | "%") => edits.close_mul(level, before_end),
            // minijinja has no positive sign.
            (TokenKind::Operator, "+") if is_prefix => edits.put(token.start, 1, " "),
            (TokenKind::Operator, "-") if is_prefix => {}
            (TokenKind::Operator, "**" | "|" | ".") => {}
            (TokenKind::Operator, "+" | "-") => {
                edits.close_sum(level, before_end);
                *level = Level { compared: level.compared, ..Level::new(token.end()) };
            }
            (TokenKind::Operator, operator) => {
                // A slice is no subscript.
                if let (":", Some(subscript)) = (operator, subscripts.last_mut()) {
                    *subscript = None;
                }
                edits.close(level, tokens, index);
                *level = Level::new(token.end());
                level.compared = ["==", "!=", "<", "<=", ">", ">="].contains(&operator).then_some(index + 1);
                if is_set && depth == 1 && token.text == "=" && value_start.is_none() {
                    value_start = Some((token.end(), index + 1));
                }
            }
            // The name of a statement.
            (TokenKind::Name, _) if index == 0 && is_block => *level = Level::new(token.end()),
            (TokenKind::Name, "recursive") if tokens[0].text != "for" => {}
            // `x is in y` and `x is not none` are tests, which bind as filters do.
            (TokenKind::Name, name)
                if is_keyword(name)
                    && before.is_none_or(|before| before.text != "." && before.text != "is")
                    && !is_negated_test(tokens, index) =>
            {
                edits.close(level, tokens, index);
                let is_loop = is_for && depth == 1 && value_start.is_none();
                if is_for && depth == 1 {
                    match (name, value_start) {
                        ("in", None) => value_start = Some((token.end(), index + 1)),
                        ("if" | "recursive", Some(_)) => value_end = value_end.or(Some(before_end)),
                        _ => {}
                    }
                }
                *level = Level::new(token.end());
                level.compared = (name == "in" && !is_loop).then_some(index + 1);
            }
            (TokenKind::Text, text) if text.contains('\\') => unescape(&mut edits, token),
            _ => {}
        }
    }
    let expression_end = tokens.last().map_or(open + 2, Token::end);
    for level in levels.iter_mut().rev() {
        edits.close(level, tokens, tokens.len());
    }
    if let Some((start, index)) = value_start {
        let value = &tokens[index..];
        let is_constant = matches!(value, [token] if matches!(token.kind, TokenKind::Text | TokenKind::Number));
        if !is_constant && !value.is_empty() {
            let is_attribute = tokens[..index].iter().any(|token| token.text == ".");
            edits.open(start, " (");
            let filter = if is_for {
                ")|__each"
            } else if is_attribute {
                ")|__hold"
            } else {
                ")|__keep"
            };
            edits.put(value_end.unwrap_or(expression_end), 0, filter);
        }
    }
    let mut at = open;
    for (start, len, text) in edits.0 {
        out.push_str(&source[at..start]);
        out.push_str(&text);
        at = start + len;
    }
    out.push_str(&source[at..end]);
    Ok(())
}

/// Escapes that Python knows and minijinja does not, and the other way round.
fn unescape(edits: &mut Edits, token: &Token<'_>) {
    let mut chars = token.text.char_indices();
    while let Some((at, c)) = chars.next() {
        let Some((_, escaped)) = (if c == '\\' { chars.next() } else { None }) else { continue };
        let start = token.start + at;
        match escaped {
            '\n' => edits.put(start, 2, ""),
            'a' => edits.put(start, 2, "\\x07"),
            'v' => edits.put(start, 2, "\\x0b"),
            '/' => edits.put(start, 1, "\\\\"),
            'U' => {
                let code = token.text.get(at + 2..at + 10).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                if let Some(c) = code.and_then(char::from_u32) {
                    edits.put(start, 10, c.to_string());
                }
            }
            _ => {}
        }
    }
}

fn is_keyword(name: &str) -> bool {
    ["if", "else", "and", "or", "not", "in", "recursive"].contains(&name)
}

fn is_negated_test(tokens: &[Token<'_>], index: usize) -> bool {
    index >= 2 && tokens[index - 1].text == "not" && tokens[index - 2].text == "is"
}
