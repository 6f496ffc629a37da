//! Backend `image`: files of pictures to the tensor of a network, and what leads from its pixels back to the picture.

use crate::VisionBackend;
use crate::model::{bytes_of, capabilities, check_count, input_names, output_names, push, tensors};
use crate::parameters::texts;
use backend::gather::{batch_slab, frozen, input_of, own_strings, within_budget};
use backend::{Batch, BatchEntry, Capabilities, Marks, Model, ModelIo, Outcome, RunControl, helpers, now_ns, scatter};
use bytes::Bytes;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use tensor::strings::Strings;
use tensor::{Data, DataType, Error, Result, Shape};
use vision::Placement;
use vision::parameters::{self, ImageSettings, Parameters};
use vision::picture::{Layout, Picture, PictureLimits, PicturePlan, decode};

/// Backend `image`.
pub const IMAGE: VisionBackend = VisionBackend { name: "image", io, load };

/// Index of the output that has the tensor.
const TENSOR: u16 = 0;
/// Index of the output that has the placement.
const PLACEMENT: u16 = 1;
/// Parameters of the backend beside those of a plan.
const THREADS: &str = "threads";

/// The settings of a configuration.
struct Settings {
    plan: PicturePlan,
    limits: PictureLimits,
    threads: usize,
}

impl Settings {
    fn read(config: &ModelConfig) -> Result<Self> {
        let known: Vec<_> = parameters::IMAGE.into_iter().chain([THREADS]).collect();
        let configured = configured_datatype(config)?;
        let mut texts: Vec<_> = texts(config).collect();
        if let (Some(name), false) = (configured, texts.iter().any(|(key, _)| *key == "datatype")) {
            texts.push(("datatype", name));
        }
        let parameters = Parameters::new("backend 'image'", texts, &known)?;
        let ImageSettings { plan, limits } = parameters::image(&parameters)?;
        let settings = Self { plan, limits, threads: parameters.number(THREADS)?.unwrap_or(usize::MAX).max(1) };
        if configured.is_some_and(|name| !settings.datatype().name().eq_ignore_ascii_case(name)) {
            return Err(Error::invalid(format!(
                "parameter 'datatype' and the data_type of output '{}' differ: remove the parameter",
                config.output[0].name
            )));
        }
        Ok(settings)
    }

    fn datatype(&self) -> DataType {
        self.plan.output().datatype.in_protocol()
    }
}

/// Datatype of the first output, if the configuration has it, as the parameter `datatype`.
fn configured_datatype(config: &ModelConfig) -> Result<Option<&'static str>> {
    let Some(output) = config.output.first().filter(|output| output.data_type != 0) else { return Ok(None) };
    match DataType::from_number(output.data_type) {
        Some(DataType::Fp32) => Ok(Some("fp32")),
        Some(DataType::Fp16) => Ok(Some("fp16")),
        Some(DataType::Uint8) => Ok(Some("uint8")),
        _ => Err(Error::invalid(format!("output '{}' must be TYPE_FP32, TYPE_FP16 or TYPE_UINT8", output.name))),
    }
}

fn io(config: &ModelConfig) -> Result<ModelIo> {
    let settings = Settings::read(config)?;
    check_count("input", config.input.len(), &["the files"])?;
    check_count("output", config.output.len(), &["the tensor", "the placement"])?;
    let channels = settings.plan.output().colour.channels() as i64;
    let row = match (settings.plan.fixed_shape(), settings.plan.output().layout) {
        (Some(dims), _) => dims.map(|dim| dim as i64),
        (None, Layout::Nchw) => [channels, -1, -1],
        (None, Layout::Nhwc) => [-1, -1, channels],
    };
    // The files of a model without batching are counted by any dim.
    let files = if config.max_batch_size > 0 || config.input.is_empty() { 1 } else { -1 };
    let tensor = [-1, row[0], row[1], row[2]];
    let mut outputs = tensors(
        &output_names(config),
        &[("TENSOR", settings.datatype(), &tensor), ("PLACEMENT", DataType::Fp32, &[-1, 6])],
    );
    if config.output.len() == 1 {
        outputs.truncate(1);
    }
    Ok(ModelIo { inputs: tensors(&input_names(config), &[("IMAGE", DataType::Bytes, &[-1, files])]), outputs })
}

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    let settings = Settings::read(config)?;
    if signature.inputs.first().is_some_and(|input| input.datatype != DataType::Bytes) {
        return Err(Error::invalid(format!("input '{}' must be TYPE_STRING: it has files", signature.inputs[0].name)));
    }
    Ok(Arc::new(ImageModel { settings, signature }))
}

struct ImageModel {
    settings: Settings,
    signature: Arc<Signature>,
}

/// A picture on its way to a row.
enum PictureSource {
    File(Bytes),
    Picture(Result<Picture>),
}

impl ImageModel {
    /// The files of a request.
    fn files(&self, entry: &BatchEntry) -> Result<Vec<PictureSource>> {
        let input = input_of(entry, 0).ok_or_else(|| Error::internal("a request without files"))?;
        let bytes = own_strings(input, &self.signature)?.to_bytes()?;
        let files = Strings::new(&bytes).map_while(Result::ok).map(|file| PictureSource::File(bytes.slice_ref(file)));
        Ok(files.collect())
    }

    /// Runs `work` for each item, in memory that is charged, on several threads.
    fn each<T: Send>(
        &self,
        items: impl ExactSizeIterator<Item = T> + Send,
        control: &RunControl,
        work: impl Fn(T) + Sync,
    ) {
        helpers::each("nereid-image", self.settings.threads, items, control, work);
    }

    /// Dims of each row. Pictures whose sizes decide them are decoded first.
    fn row_shape(&self, sources: &mut [PictureSource], control: &RunControl) -> Result<[usize; 3]> {
        if let Some(shape) = self.settings.plan.fixed_shape() {
            return Ok(shape);
        }
        self.each(sources.iter_mut(), control, |source| {
            if let PictureSource::File(file) = source {
                *source = PictureSource::Picture(within_budget(|| self.decode(file)));
            }
        });
        let mut shape = None;
        for (row, source) in sources.iter().enumerate() {
            let PictureSource::Picture(Ok(picture)) = source else { continue };
            let own =
                self.settings.plan.output_shape(picture.width(), picture.height()).map_err(|e| of_row(row, &e))?;
            match shape.replace(own) {
                Some(other) if other != own => {
                    return Err(Error::invalid(format!(
                        "pictures of a batch make tensors of one shape, but picture {row} makes {own:?} and another \
                         {other:?}: send them apart, or give the model a size"
                    )));
                }
                _ => {}
            }
        }
        // Without a shape every picture failed, and the first says why.
        Ok(shape.unwrap_or_default())
    }

    fn decode(&self, file: &[u8]) -> Result<Picture> {
        decode(file, &self.settings.limits, self.settings.plan.output().colour)
    }

    fn run_file(&self, file: &[u8], to: &mut [u8]) -> Result<Placement> {
        self.settings.plan.run_file(file, &self.settings.limits, to)
    }

    fn answer(&self, entry: &BatchEntry, mut sources: Vec<PictureSource>, control: &RunControl) -> Result<Outcome> {
        let row = self.row_shape(&mut sources, control)?;
        let rows = sources.len();
        let row_bytes = row.iter().product::<usize>() * self.settings.plan.output().datatype.byte_size();
        let (mut slab, charge) = batch_slab(rows * row_bytes)?;
        let mut placements: Vec<Result<Placement>> = (0..rows).map(|_| Err(cancelled())).collect();
        // Pictures that failed have no bytes to divide.
        if row_bytes > 0 {
            let jobs = sources.iter().zip(slab.chunks_mut(row_bytes)).zip(&mut placements);
            self.each(jobs, control, |((source, to), placement)| {
                *placement = match source {
                    PictureSource::File(file) => within_budget(|| self.run_file(file, to)),
                    PictureSource::Picture(Ok(picture)) => self.settings.plan.run(picture, to),
                    PictureSource::Picture(Err(error)) => Err(error.clone()),
                };
            });
        } else if let Some(PictureSource::Picture(Err(error))) = sources.first() {
            return Err(of_row(0, error));
        }
        let placements: Vec<Placement> = placements
            .into_iter()
            .enumerate()
            .map(|(row, placement)| placement.map_err(|error| of_row(row, &error)))
            .collect::<Result<_>>()?;
        let mut outcome = Outcome::default();
        let dims: Shape = row.iter().map(|&dim| dim as i64).collect();
        let mut put = |index, row: &[i64], data: &dyn Fn() -> Data| {
            push(entry, &self.signature, &mut outcome, index, (rows, row), data)
        };
        let tensor = Data::Bytes(frozen(slab, charge));
        put(TENSOR, &dims, &|| tensor.clone())?;
        put(PLACEMENT, &[6], &|| {
            bytes_of(placements.iter().flat_map(|placement| placement.values().map(f32::to_le_bytes)))
        })?;
        Ok(outcome)
    }
}

fn of_row(row: usize, error: &Error) -> Error {
    error.clone().prefixed(format_args!("picture {row}: "))
}

fn cancelled() -> Error {
    Error::cancelled("the request was cancelled while its pictures were decoded")
}

impl Model for ImageModel {
    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        self.each(batch.requests.iter_mut(), control, |entry| {
            if entry.result.is_none() {
                let sources = self.files(entry);
                entry.result = Some(sources.and_then(|sources| self.answer(entry, sources, control)));
            }
        });
        let inference_end = now_ns();
        if control.is_stopped() {
            scatter::fail_all(batch.requests, &cancelled());
        }
        Marks { inputs_ready, inference_end, outputs_ready: now_ns() }
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }
}
