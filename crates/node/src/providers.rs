//! Finds ONNX Runtime's device providers without a core: for `nereid gpu`, and before anything is loaded.

use crate::objects as js;
use backend_onnx::provider;
use napi_derive::napi;
use std::path::PathBuf;

/// Reports the providers here. `library` is npm's ONNX Runtime, `settings` those of the backend `onnxruntime`.
#[napi]
pub fn find_providers(library: Option<String>, settings: Vec<js::Setting>) -> js::ProviderReport {
    let settings: Vec<_> = settings.into_iter().map(|s| (s.key, s.value)).collect();
    let places = provider::Places::of(library.map(PathBuf::from), &settings, |name| std::env::var_os(name));
    let found = provider::report(&places);
    js::ProviderReport {
        library: found.library.map(text),
        release: found.release,
        directory: found.directory.map(text),
        cuda: of(found.cuda),
        tensorrt: of(found.tensorrt),
    }
}

fn of(found: provider::Provider) -> js::Provider {
    let library =
        |l: provider::Needed| js::ProviderLibrary { name: l.name, file: l.file.map(text), optional: l.is_optional };
    js::Provider {
        usable: found.is_usable(),
        file: found.file.map(text),
        libraries: found.libraries.into_iter().map(library).collect(),
        problems: found.problems,
        command: found.command,
    }
}

fn text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}
