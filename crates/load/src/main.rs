//! `nereid-load PLAN.json`: one measurement, whose result is printed as lines of JSON.

use load::plan::{AnyError, Plan};
use serde_json::json;
use std::io::{Read, Write};

const USAGE: &str = "usage: nereid-load PLAN.json, or - for standard input";

/// Reads the plan. If it is in a file, the end of standard input ends the measurement.
fn plan() -> Result<Plan, AnyError> {
    let mut words = std::env::args().skip(1);
    let (Some(path), None) = (words.next(), words.next()) else { return Err(USAGE.into()) };
    let mut text = String::new();
    if path == "-" {
        std::io::stdin().read_to_string(&mut text)?;
    } else {
        text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}; {USAGE}"))?;
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            load::system::end();
        });
    }
    Plan::read(&text)
}

fn measure() -> Result<(), AnyError> {
    let plan = plan()?;
    load::system::end_on_signals();
    // Nobody reads the result if standard output is closed.
    let print = |line: serde_json::Value| {
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            load::system::end();
        }
    };
    let outcome = load::run(plan, load::system::is_ended, |point| print(json!({ "progress": point })))?;
    print(outcome.json());
    Ok(())
}

fn main() {
    if let Err(e) = measure() {
        eprintln!("nereid-load: {e}");
        std::process::exit(1);
    }
}
