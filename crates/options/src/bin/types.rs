//! Prints the TypeScript declarations of all options.

use options::{CoreOptions, IssuerOptions, ListenOptions, OpenSpec, RequestLogOptions, TraceSetting};
use std::collections::BTreeMap;
use std::io::Write;
use ts_rs::{Config, TS, TypeVisitor};

/// The declarations by name, with those of everything that they mention.
struct Declarations {
    config: Config,
    texts: BTreeMap<String, String>,
}

impl TypeVisitor for Declarations {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // Types of the library, such as lists, have no path.
        if T::output_path().is_none() || self.texts.contains_key(&T::ident(&self.config)) {
            return;
        }
        let text = format!("{}export {}\n", T::docs().unwrap_or_default(), T::decl(&self.config));
        // In TypeScript, an absent option is null.
        self.texts.insert(T::ident(&self.config), text.replace("`None`", "null"));
        T::visit_dependencies(self);
    }
}

fn main() -> std::io::Result<()> {
    let config = Config::new().with_large_int("number");
    let mut all = Declarations { config, texts: BTreeMap::new() };
    all.visit::<CoreOptions>();
    all.visit::<IssuerOptions>();
    all.visit::<ListenOptions>();
    all.visit::<OpenSpec>();
    all.visit::<RequestLogOptions>();
    all.visit::<TraceSetting>();
    let mut out = std::io::stdout().lock();
    for line in all.texts.into_values().collect::<Vec<_>>().join("\n").lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
