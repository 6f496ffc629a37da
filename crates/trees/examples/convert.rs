//! `convert MODEL_TYPE FILE TO [class | both]`: converts a tree model to ONNX, for inspection with other tools.

use std::process::ExitCode;
use trees::onnx::{OutputKind, write};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model_type, file, to, rest @ ..] = &arguments[..] else {
        eprintln!("convert MODEL_TYPE FILE TO [class | both]");
        return ExitCode::from(2);
    };
    let answer = match rest.first().map(String::as_str) {
        Some("class") => OutputKind::Class { threshold: 0.5 },
        Some("both") => OutputKind::BothClasses,
        _ => OutputKind::Prediction,
    };
    let made = trees::Format::from_model_type(model_type)
        .ok_or_else(|| format!("{model_type} is no model_type"))
        .and_then(|format| Ok((format, std::fs::read(file).map_err(|e| e.to_string())?)))
        .and_then(|(format, bytes)| trees::read(format, &bytes).map_err(|e| e.message().to_owned()))
        .and_then(|ensemble| std::fs::write(to, write(&ensemble, answer)).map_err(|e| e.to_string()));
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
