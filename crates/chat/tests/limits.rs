//! A template from a stranger ends soon, takes little memory, and fails with an error.

use chat::template::{Conversation, Json, TEMPLATE_BYTES_MAX, Template};
use std::time::{Duration, Instant};

fn conversation() -> Conversation<Json> {
    let message = serde_json::from_str(r#"{"role": "user", "content": "q"}"#).expect("a message");
    Conversation { messages: vec![message], ..Conversation::default() }
}

fn render(source: &str) -> Result<String, String> {
    let prompt = Template::compile(source).and_then(|template| template.render(&conversation()));
    prompt.map_err(|error| error.message().to_owned())
}

/// Templates that would take too long or too much memory, and a word of the error.
fn bombs() -> Vec<(&'static str, String, &'static str)> {
    let doubling = |first: &str, next: &str, last: &str| {
        let set = format!("{{% set x = {next} %}}");
        format!("{{% set x = {first} %}}{}{last}", set.repeat(70))
    };
    let looped = |body: &str| {
        format!("{{% set ns = namespace(x=[0], s='ab') %}}{{% for i in range(100000) %}}{body}{{% endfor %}}")
    };
    let many =
        |condition: &str| format!("{{% for i in range(100000) %}}{{% if {condition} %}}{{% endif %}}{{% endfor %}}");
    let trees =
        "{% set x = [1] %}{% set y = [1] %}".to_owned() + &"{% set x = [x, x] %}{% set y = [y, y] %}".repeat(13);
    vec![
        ("loops", looped("{% for j in range(100000) %}{% endfor %}"), "steps"),
        ("loop with text", looped("{{ i }}"), ""),
        (
            "loop with nothing",
            looped(&"{% for j in range(100000) %}".repeat(50)).replace(
                "{% endfor %}\
             ",
                &"{% endfor %}".repeat(51),
            ),
            "steps",
        ),
        ("recursive macro", "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}".into(), "recursion"),
        (
            "branching macro",
            "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}\
             {{ m(40) }}"
                .into(),
            "",
        ),
        ("recursive loop", "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".into(), "recursion"),
        ("range", "{{ range(10**9) }}".into(), "range"),
        ("range of steps", "{{ range(9223372036854775807, -9223372036854775807, -1) }}".into(), "range"),
        ("text by number", "{{ 'x' * 10**9 }}".into(), "1000000000 bytes"),
        ("text by numbers", "{{ 'x' * 1000 * 1000 * 1000 }}".into(), "bytes"),
        ("width", "{{ '%(n)010000000d' % {'n': 1} }}".into(), "longer than"),
        ("widths", "{{ '%5s%400000.700000f' | format('a', 1) }}".into(), "longer than"),
        ("list by number", "{{ [0] * 10**9 }}".into(), "steps"),
        ("lists by numbers", "{% for x in [0] * 1000 * 1000 * 1000 %}{% endfor %}".into(), "steps"),
        ("tuple by number", "{{ (0, 1) * 10**8 }}".into(), "steps"),
        ("doubled text", doubling("'ab'", "x + x", "{{ x }}"), "steps"),
        ("doubled text by ~", doubling("'ab'", "x ~ x", "{{ x }}"), "bytes"),
        ("doubled list", doubling("[1]", "x + x", "{{ x | length }}"), "steps"),
        ("doubled list, text", doubling("[1]", "x + x", "{{ x ~ '' }}"), "steps"),
        ("lists in lists", doubling("[1]", "[x, x]", "{{ x == x }}"), "steps"),
        ("lists in lists, JSON", doubling("[1]", "[x, x]", "{{ x | tojson }}"), "steps"),
        ("dicts in dicts", doubling("{}", "{'a': x, 'b': x}", "{{ x }}"), "steps"),
        ("joined", doubling("'ab'", "[x, x] | join(x)", "{{ x }}"), "bytes"),
        ("replaced", doubling("'ab'", "x.replace('', x)", "{{ x }}"), "bytes"),
        ("replaced by a filter", doubling("'ab'", "x | replace('a', x)", "{{ x }}"), "steps"),
        ("JSON of JSON", doubling("'\"'", "x | tojson", "{{ x }}"), "bytes"),
        ("format", "{{ '%1000000000d' | format(1) }}".into(), ""),
        ("indent", doubling("'a\n'", "(x ~ x) | indent(100000)", "{{ x }}"), ""),
        (
            "indent of JSON",
            "{% set ns = namespace(x=1) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}\
             {% endfor %}{% for i in range(999) %}{{ ns.x | tojson(indent=1000) }}{% endfor %}"
                .into(),
            "",
        ),
        ("padding", "{{ 'a'.ljust(10**9) }}{{ 'a'.center(10**18) }}{{ 'a'.zfill(10**9) }}".into(), "bytes"),
        ("center filter", "{{ 'a' | center(10**9) }}".into(), "unknown"),
        ("batch", "{{ [1] | batch(10**8, 'x') | list }}".into(), ""),
        ("slice", "{{ [1] | slice(10**8, 'x') | list }}".into(), ""),
        ("round", "{{ 1.5 | round(10**9) }}".into(), ""),
        ("nesting in a namespace", looped("{% set ns.x = [ns.x] %}"), "deep"),
        ("dicts in a namespace", looped("{% set ns.x = {'a': ns.x} %}"), "deep"),
        ("namespace in itself", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".into(), "namespace"),
        (
            "namespace in its list",
            "{% set ns = namespace() %}{% set ns.a = [{'b': ns}] %}{{ ns ~ ns }}\
             "
            .into(),
            "namespace",
        ),
        ("slices of slices", looped("{% set ns.x = ns.x[0:] %}{% set ns.s = namespace(y=ns.x) %}"), ""),
        ("sums in a list", looped("{% set ns.x = [ns.x[0:] + [1]] %}"), ""),
        ("growing list", looped("{% set ns.x = ns.x + [i] %}"), "steps"),
        ("growing text", looped("{% set ns.s = ns.s + 'abcdefghijklmnopqrstuvwxyz' %}"), "steps"),
        ("captured text", looped("{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"), "steps"),
        (
            "captured in a macro",
            "{% macro m(a) %}{{ a }}{{ a }}{% endmacro %}\
             "
            .to_owned()
                + &doubling("'ab'", "m(x)", "{{ x }}"),
            "steps",
        ),
        ("long prompt", "{% for i in range(100000) %}abcdefghijklmnopqrstuvwxyz{% endfor %}".into(), "longer than"),
        ("long text", format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "x".repeat(50_000)), "longer than"),
        (
            "comparison",
            "{% set a = range(20000) | list %}{% set b = range(20000) | list %}\
             {% for i in range(100000) %}{% if a == b %}{% endif %}{% endfor %}"
                .into(),
            "steps",
        ),
        (
            "search",
            "{% set a = range(20000) | list %}{% for i in range(100000) %}{% if -1 in a %}{% endif %}\
             {% endfor %}"
                .into(),
            "steps",
        ),
        (
            "search in a text",
            "{% set a = 'ab' * 400000 %}{% for i in range(100000) %}{% if 'bb' in a %}\
             {% endif %}{% endfor %}"
                .into(),
            "steps",
        ),
        (
            "methods of a text",
            "{% set a = 'ab' * 400000 %}{% for i in range(100000) %}{% if a.find('bb') %}\
             {% endif %}{{ a.count('x') }}{{ a.split('b') | length }}{% endfor %}"
                .into(),
            "steps",
        ),
        (
            "sorted",
            "{% set a = range(20000) | list %}{% for i in range(100000) %}{% set b = a | sort %}\
             {% endfor %}"
                .into(),
            "steps",
        ),
        (
            "strings of a list",
            "{% set a = range(20000) | list %}{% for i in range(100000) %}\
             {% set b = a ~ a %}{% endfor %}"
                .into(),
            "steps",
        ),
        ("format with braces", doubling("'{0}{0}'", "x.format(x)", "{{ x }}"), ""),
        ("sum", "{% set a = ['a' * 1000] * 1000 %}{{ a | sum(start='') | length }}".into(), ""),
        ("unpacking", "{% set a, b = [0] * 100000 %}{{ a }}".into(), ""),
        ("arguments", "{% macro m() %}{% endmacro %}{{ m(*([0] * 100000)) }}".into(), ""),
        ("brackets", format!("{{{{ {}1{} }}}}", "[".repeat(100), "]".repeat(100)), "brackets"),
        ("additions", format!("{{{{ 1{} }}}}", "+1".repeat(100_000)), "tokens"),
        ("not", format!("{{{{ {}1 }}}}", "not ".repeat(60_000)), "tokens"),
        ("minus", format!("{{{{ {}1 }}}}", "- ".repeat(1000)), ""),
        ("nots", format!("{{{{ {}1 }}}}", "not ".repeat(1000)), ""),
        ("choices", format!("{{{{ {}1 }}}}", "1 if 0 else ".repeat(200)), ""),
        ("powers", format!("{{{{ 2{} }}}}", "**1".repeat(500)), ""),
        ("filters", format!("{{{{ 'a'{} }}}}", "|trim".repeat(500)), ""),
        ("attributes", format!("{{{{ a{} }}}}", ".b".repeat(500)), ""),
        ("concats", format!("{{{{ 'a'{} }}}}", " ~ 'b'".repeat(500)), ""),
        ("products", format!("{{{{ 1{} }}}}", " * 1".repeat(500)), ""),
        ("elif", format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}a".repeat(20_000)), "elif"),
        ("ifs", format!("{}{}", "{% if 1 %}".repeat(10_000), "{% endif %}".repeat(10_000)), ""),
        (
            "elif in elif",
            "{% if 0 %}{% elif 1 %}{% elif 1 %}{% elif 1 %}".repeat(120) + &"{% endif %}".repeat(120),
            "elif",
        ),
        (
            "ifs around an expression",
            "{% if 1 %}{% elif 1 %}".repeat(120)
                + &format!("{{{{ {}1 }}}}", "not ".repeat(1000))
                + &"{% endif %}".repeat(120),
            "",
        ),
        (
            "deep value in deep macros",
            "{% set ns = namespace(x=1) %}{% for i in range(250) %}{% set ns.x = [ns.x] %}{% endfor %}\
             {% macro m(n, v) %}{% if n %}{{ m(n - 1, [v]) }}{% else %}{{ v }}{{ v | tojson }}{{ v ~ v }}{{ v == [v] }}\
             {% set w = v %}{% endif %}{% endmacro %}{{ m(6, ns.x) }}{{ m(40, 1) }}"
                .into(),
            "",
        ),
        ("elifs", format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}a".repeat(256)), ""),
        ("comments", "{#".repeat(100_000), "line"),
        ("columns", "x".repeat(66_000) + "{% x", "line"),
        ("lines", "\n".repeat(100_000) + "{% x", "line"),
        ("tags", "{%".repeat(100_000), "tokens"),
        (
            "compared texts",
            format!("{}{}", "{% set a = 'x' * 1000000 %}{% set b = 'x' * 1000000 %}", many("a == b")),
            "steps",
        ),
        ("compared trees", format!("{trees}{}", many("x == y")), "steps"),
        ("ordered trees", format!("{trees}{}", many("x < y")), "steps"),
        ("tree in a list", format!("{trees}{}", many("y in [[x], x]")), "steps"),
        ("selected trees", format!("{trees}{}", many("[x, x, x, x] | select('equalto', y) | list")), "steps"),
        ("tree that is in a list", format!("{trees}{}", many("y is in [x, x]")), "steps"),
        ("sorted trees", format!("{trees}{}", many("[x, y, x, y] | sort")), "steps"),
        ("unique trees", format!("{trees}{}", many("[x, y] | unique")), "steps"),
        ("least tree", format!("{trees}{}", many("[x, y] | min")), "steps"),
        ("counted trees", format!("{trees}{}", many("[x, x].count(y)")), "steps"),
        ("tree as a key", format!("{trees}{}", many("messages[0][y]")), "steps"),
        ("tree in a mapping", format!("{trees}{}", many("y in messages[0]")), "steps"),
        ("long source", " ".repeat(TEMPLATE_BYTES_MAX + 1), "bytes"),
    ]
}

#[test]
fn a_template_that_takes_too_much_fails() {
    let limit = if cfg!(debug_assertions) { Duration::from_secs(5) } else { Duration::from_millis(500) };
    let mut report = String::new();
    let mut slow = Vec::new();
    for (name, source, word) in bombs() {
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{name}");
        }
        let started = Instant::now();
        let outcome = render(&source);
        let took = started.elapsed();
        let said = match &outcome {
            Ok(prompt) => format!("{} bytes", prompt.len()),
            Err(error) => error.chars().take(120).collect(),
        };
        report += &format!("{took:>12.3?}  {name}: {said}\n");
        if took > limit || !(word.is_empty() || outcome.is_err_and(|error| error.contains(word))) {
            slow.push(name);
        }
    }
    println!("{report}");
    assert!(slow.is_empty(), "too slow, or without the expected error: {slow:?}\n{report}");
}
