//! Loads of models.

use super::index::reject_named;
use super::*;
use crate::access_log::parameters::LoggedFiles;
use crate::access_log::parameters::put_config;
use crate::control::Argument;
use crate::grpc::status::Status;
use crate::limits::LOAD_FILES_MAX;
use crate::text::decode_base64;
use protocol::pb::inference::model_repository_parameter::ParameterChoice;

/// Loads a model, or loads it again.
pub struct Load;

/// Files of a load, by their parameter (`file:<path>`).
type Files = Vec<(String, Vec<u8>)>;

/// A model to load.
struct LoadRequest {
    model: String,
    argument: Argument,
}

impl LoadRequest {
    /// A load of `model`. `read` writes its parameters, one JSON value, and takes the files out of them.
    ///
    /// # Errors
    /// UNSUPPORTED if a repository is named; INVALID_ARG for too many files or text that is not UTF-8; those of `read`.
    fn new(
        repository: &str,
        model: &str,
        read: impl FnOnce(&mut Text, &mut Files) -> tensor::Result<()>,
    ) -> tensor::Result<Self> {
        reject_named(repository)?;
        let (mut argument, mut files) = (Text::begin(b'{'), Files::new());
        argument.key("model").string(model).key("parameters");
        read(&mut argument, &mut files)?;
        check_files(files.len())?;
        argument.close(b'}');
        Ok(Self { model: model.to_owned(), argument: Argument { json: argument.into_string()?, files } })
    }

    async fn run(self, with: &Context<'_>) -> Result<()> {
        with.admit_model(&self.model)?;
        with.control.call(ControlOperation::RepositoryLoad, self.argument).await?;
        Ok(())
    }
}

/// Checks the number of files before they are decoded.
///
/// # Errors
/// INVALID_ARG with both numbers.
fn check_files(count: usize) -> tensor::Result<()> {
    if count <= LOAD_FILES_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!("{count} file parameters, at most {LOAD_FILES_MAX} are taken")))
}

impl Endpoint for Load {
    fn facts(&self) -> &'static Facts {
        const {
            &Facts {
                names: &[("model", 2)],
                audit_body,
                audit_message,
                ..Facts::write("load", Category::ModelRepository)
            }
        }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let PathNames { model, repository, .. } = exchange.names();
            let (repository, model) = (repository.to_owned(), model.to_owned());
            let load = read(body.bytes, move |body| {
                LoadRequest::new(&repository, &model, |text, files| parameters(body, text, files))
            });
            load.await?.run(&exchange.operations()).await.map(|()| Bytes::new())
        })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            // The files of a model may come with it.
            read_message(message, read_load).await?.run(&exchange.operations()).await?;
            Ok(frame(&pb::RepositoryModelLoadResponse {}))
        })
    }
}

/// Writes the parameters of a load. Decodes the files of long ones; a file that is not base64 stays in the parameters,
/// where TypeScript rejects it with other wrong values.
fn parameters(body: &Bytes, argument: &mut Text, files: &mut Files) -> tensor::Result<()> {
    let parameters = optional(body)?.and_then(|v| v.get("parameters"));
    let long = parameters.filter(|p| p.is_object() && p.text().len() > JSON_BYTES_ON_REACTOR_MAX);
    let Some(parameters) = long else {
        argument.raw(parameters.map_or(b"{}", |p| p.text()));
        return Ok(());
    };
    let decoded = |value: Value<'_>| decode_base64(&value.as_text().ok()?.decode());
    check_files(parameters.members()?.filter(|(key, _)| key.decode().starts_with(b"file:")).count())?;
    argument.open(b'{');
    for (key, value) in parameters.members()? {
        // A name that is not UTF-8 is rejected with the whole text.
        let name = key.decode();
        let contents = if name.starts_with(b"file:") { decoded(value) } else { None };
        match (contents, std::str::from_utf8(&name)) {
            (Some(contents), Ok(name)) => files.push((name.to_owned(), contents)),
            (_, Ok(name)) => _ = argument.key(name).raw(value.text()),
            (_, Err(_)) => return Err(Error::invalid("the request holds text that is not UTF-8")),
        }
    }
    argument.close(b'}');
    Ok(())
}

fn read_load(message: Bytes) -> std::result::Result<LoadRequest, Status> {
    // One of them may be the configuration. Counted before they are read: a table of them takes many times their bytes.
    check_files(fields(&message, LOAD_PARAMETERS).saturating_sub(1))?;
    let request: pb::RepositoryModelLoadRequest = decode_long(message)?;
    let wrong = |key: &str, wanted: &str| {
        Err(Error::invalid(format!("invalid value type for load parameter '{key}', expected {wanted}.")))
    };
    let parameters = request.parameters;
    Ok(LoadRequest::new(&request.repository_name, &request.model_name, |argument, files| {
        argument.open(b'{');
        for (key, value) in parameters {
            match (key.as_str(), value.parameter_choice) {
                ("config", Some(ParameterChoice::StringParam(config))) => _ = argument.key(&key).string(&config),
                ("config", _) => return wrong(&key, "string_param"),
                (file, Some(ParameterChoice::BytesParam(contents))) if file.starts_with("file:") => {
                    files.push((key, contents.into()));
                }
                (file, _) if file.starts_with("file:") => return wrong(file, "bytes_param"),
                _ => return Err(Error::invalid(format!("unrecognized load parameter '{key}'."))),
            }
        }
        argument.close(b'}');
        Ok(())
    })?)
}

/// The field `parameters` of a `RepositoryModelLoadRequest`.
const LOAD_PARAMETERS: u32 = 3;

/// Number of occurrences of a field in the readable part of a message.
fn fields(mut message: &[u8], wanted: u32) -> usize {
    let mut count = 0;
    while let Ok((tag, wire_type)) = prost::encoding::decode_key(&mut message) {
        count += usize::from(tag == wanted);
        if prost::encoding::skip_field(wire_type, tag, &mut message, Default::default()).is_err() {
            break;
        }
    }
    count
}

fn audit_body(body: Value<'_>, line: &mut JsonLine<'_>) {
    let Some(members) = body.get("parameters").and_then(|p| p.members().ok()) else { return };
    let mut files = LoggedFiles::default();
    for (name, value) in members {
        let name = name.decode();
        let contents = || value.as_text().map(|text| text.decode().into_owned()).unwrap_or_default();
        if name.starts_with(b"file:") {
            files.add(&name, || decode_base64(&contents()).unwrap_or_default());
        } else if &*name == b"config" {
            put_config(&contents(), line);
        }
    }
    files.put(line);
}

fn audit_message(message: &[u8], line: &mut JsonLine<'_>) -> std::result::Result<(), DecodeError> {
    let request = pb::RepositoryModelLoadRequest::decode(message)?;
    let mut parameters: Vec<_> = request.parameters.iter().collect();
    parameters.sort_unstable_by_key(|(name, _)| *name);
    let mut files = LoggedFiles::default();
    for (name, value) in parameters {
        let contents: &[u8] = match &value.parameter_choice {
            Some(ParameterChoice::BytesParam(bytes)) => bytes,
            Some(ParameterChoice::StringParam(text)) => text.as_bytes(),
            _ => b"",
        };
        if name == "config" {
            put_config(contents, line);
        } else {
            files.add(name.as_bytes(), || contents.to_vec());
        }
    }
    files.put(line);
    Ok(())
}
