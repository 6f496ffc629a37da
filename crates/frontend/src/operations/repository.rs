//! The model repository: index, loads and unloads.

use super::{Context, Result};
use crate::control::{Argument, ControlOperation};
use crate::limits::LOAD_FILES_MAX;
use crate::text::Text;
use tensor::Error;

fn reject_named(repository: &str) -> tensor::Result<()> {
    if repository.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported("'repository_name' specification is not supported"))
}

/// The models, or those that are ready, as the JSON of the native contract.
pub async fn index(context: &Context<'_>, repository: &str, ready: bool) -> Result<String> {
    reject_named(repository)?;
    let mut argument = Text::begin(b'{');
    argument.key("ready").boolean(ready).close(b'}');
    context.control(ControlOperation::RepositoryIndex, argument).await
}

/// Files of a load, by their parameter (`file:<path>`).
pub type Files = Vec<(String, Vec<u8>)>;

/// A model to load.
pub struct Load {
    model: String,
    argument: Argument,
}

impl Load {
    /// A load of `model`. `read` writes its parameters, one JSON value, and takes the files out of them.
    ///
    /// # Errors
    /// UNSUPPORTED if a repository is named; INVALID_ARG for too many files or text that is not UTF-8; those of `read`.
    pub fn new(
        repository: &str,
        model: &str,
        read: impl FnOnce(&mut Text, &mut Files) -> tensor::Result<()>,
    ) -> tensor::Result<Self> {
        reject_named(repository)?;
        let (mut argument, mut files) = (Text::begin(b'{'), Files::new());
        argument.key("model").string(model).key("parameters");
        read(&mut argument, &mut files)?;
        Self::check_files(files.len())?;
        argument.close(b'}');
        Ok(Self { model: model.to_owned(), argument: Argument { json: argument.into_string()?, files } })
    }

    /// Checks the number of files before they are decoded.
    ///
    /// # Errors
    /// INVALID_ARG with both numbers.
    pub fn check_files(count: usize) -> tensor::Result<()> {
        if count <= LOAD_FILES_MAX {
            return Ok(());
        }
        Err(Error::invalid(format!("{count} file parameters, at most {LOAD_FILES_MAX} are taken")))
    }
}

/// Loads a model, or loads it again.
pub async fn load(context: &Context<'_>, load: Load) -> Result<()> {
    context.admit_model(&load.model)?;
    context.control.call(ControlOperation::RepositoryLoad, load.argument).await?;
    Ok(())
}

/// Unloads a model and, if `dependents`, awaited after the other checks, is true, the models that only it uses.
pub async fn unload(
    context: &Context<'_>,
    repository: &str,
    model: &str,
    dependents: impl Future<Output = tensor::Result<bool>>,
) -> Result<()> {
    context.admit_model(model)?;
    reject_named(repository)?;
    let dependents = dependents.await?;
    let mut argument = Text::begin(b'{');
    argument.key("model").string(model).key("unload_dependents").boolean(dependents).close(b'}');
    context.control(ControlOperation::RepositoryUnload, argument).await?;
    Ok(())
}
