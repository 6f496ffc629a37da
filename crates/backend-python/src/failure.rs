//! Texts for a model whose code fails to load: the recorded text, then hints (line, package, command to install it).
//!
//! Hints follow the stack frames and look like them: two blanks, `(line): text`. Triton's text stays at the front.

use crate::probe::Interpreter;
use backend_process::Source;
use std::fmt::Write;

/// Shown bytes of a source line.
const LINE_BYTES_MAX: usize = 200;

/// The text for the client. `missing` is a package that the code imports and that was not found.
pub(crate) fn explain(text: &str, source: Option<&Source>, missing: Option<&str>, interpreter: &Interpreter) -> String {
    let mut explained = text.to_owned();
    if let Some(Source { file, line, text }) = source {
        if !explained.contains("\n\nAt:\n") {
            let _ = write!(explained, "\n\nAt:\n  {}({line}): <module>\n", one_line(file));
        }
        if !explained.ends_with('\n') {
            explained.push('\n');
        }
        let _ = writeln!(explained, "    ({line}): {}", excerpt(text.trim()));
    }
    if let Some(package) = missing.filter(|p| is_package(p)) {
        let Interpreter { program, version, .. } = interpreter;
        let program = program.display();
        if !explained.ends_with('\n') {
            explained.push('\n');
        }
        let _ = match distribution(package) {
            Some(known) => writeln!(
                explained,
                "The package '{package}' is neither beside the model nor in {program} (Python {version}). Get it \
                 with: {program} -m pip install {known}"
            ),
            None => writeln!(
                explained,
                "The module '{package}' is neither beside the model nor in {program} (Python {version}). Put it \
                 beside the model, or install the package that has it for {program}"
            ),
        };
    }
    explained
}

/// Modules and their packages; `nereid doctor` reads the same file.
const PACKAGES: &str = include_str!("../runtime/packages.txt");

/// The package of a known module. Others may be the model's own, and a package of that name could be anyone's.
fn distribution(module: &str) -> Option<&'static str> {
    let top = module.split('.').next().unwrap_or(module);
    PACKAGES.lines().find_map(|line| {
        let (name, package) = line.split_once(' ').unwrap_or((line, line));
        (name == top).then_some(package)
    })
}

/// True if a name may appear in a command; names come from an untrusted process.
fn is_package(name: &str) -> bool {
    let part = |p: &str| {
        !p.is_empty() && p.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !p.as_bytes()[0].is_ascii_digit()
    };
    name.len() <= 128 && name.split('.').all(part)
}

/// A source line with one kind of quotes, cut at an escaped line break: tools take either for the end of a frame.
fn excerpt(line: &str) -> String {
    match line.split_once("\\n") {
        Some((first, _)) => one_line(&format!("{first}…")),
        None => one_line(line),
    }
    .replace('"', "'")
}

fn one_line(text: &str) -> String {
    let mut end = text.len().min(LINE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python() -> Interpreter {
        Interpreter {
            program: "/usr/bin/python3".into(),
            executable: "/usr/bin/python3".into(),
            version: "3.11.2".into(),
            numpy: "2.4.1".into(),
        }
    }

    #[test]
    fn b_py_24_the_failed_line_follows_the_recorded_text() {
        let source = Source { file: "/r/m/1/model.py".into(), line: 9, text: "    return 1 / 0\n".into() };
        let recorded = "ZeroDivisionError: division by zero\n\nAt:\n  /r/m/1/model.py(9): initialize\n";
        assert_eq!(explain(recorded, Some(&source), None, &python()), format!("{recorded}    (9): return 1 / 0\n"));
        let syntax = "SyntaxError: expected ':' (model.py, line 9)";
        assert_eq!(
            explain(syntax, Some(&source), None, &python()),
            format!("{syntax}\n\nAt:\n  /r/m/1/model.py(9): <module>\n    (9): return 1 / 0\n")
        );
        assert_eq!(explain(recorded, None, None, &python()), recorded);
        let quoted = Source { text: "raise ValueError(\"one\\ntwo\")".into(), ..source };
        assert!(explain(recorded, Some(&quoted), None, &python()).ends_with("    (9): raise ValueError('one…\n"));
    }

    #[test]
    fn b_pyr_05_a_missing_package_is_reported_with_its_install_command() {
        let text = "ModuleNotFoundError: No module named 'torch'";
        assert_eq!(
            explain(text, None, Some("torch"), &python()),
            format!(
                "{text}\nThe package 'torch' is neither beside the model nor in /usr/bin/python3 (Python 3.11.2). Get \
                 it with: /usr/bin/python3 -m pip install torch\n"
            )
        );
        assert!(explain(text, None, Some("cv2"), &python()).ends_with("-m pip install opencv-python-headless\n"));
        assert!(explain(text, None, Some("PIL.Image"), &python()).ends_with("-m pip install pillow\n"));
        assert!(explain(text, None, Some("docx"), &python()).ends_with("-m pip install python-docx\n"));
        for name in ["utils", "my_preprocessing", "Torch", "torch_of_nobody", "src.models"] {
            let explained = explain(text, None, Some(name), &python());
            assert!(!explained.contains("pip"), "{explained}");
            assert!(
                explained.ends_with(&format!(
                    "The module '{name}' is neither beside the model nor in /usr/bin/python3 (Python 3.11.2). Put it \
                     beside the model, or install the package that has it for /usr/bin/python3\n"
                )),
                "{explained}"
            );
        }
        for name in ["1.my", ".", "", "a; rm -rf /", "a b", "--index-url"] {
            assert_eq!(explain(text, None, Some(name), &python()), text, "{name:?} is no package");
        }
    }
}
