//! Steps from a picture to a tensor, validated once and run for each picture. A run resizes, crops, pads and normalises
//! row by row, and keeps no picture in between.

use super::geometry::{Geometry, SIDE_MAX, too_small};
use super::pixels::{Picture, PictureLimits};
use super::source::RowSource;
use super::steps::{Datatype, Layout, Output, Size, Step};
use super::write::{self, ElementBytes};
use crate::Placement;
use tensor::{Error, Result};

/// Steps that were validated, and what they share for all pictures.
#[derive(Clone, Debug)]
pub struct PicturePlan {
    steps: Vec<Step>,
    output: Output,
    /// ElementBytes of the tensor by channel and value of the picture.
    values: Vec<[ElementBytes; 256]>,
    fill: [u8; 3],
    fixed: Option<(u32, u32)>,
}

impl PicturePlan {
    /// Validates steps. They run in their order; at most one resizes (resize, letterbox) and one adds borders
    /// (letterbox, pad), borders are not resized, and normalisation comes last.
    ///
    /// # Errors
    /// INVALID_ARG with the number of the step, from 1, and what is wrong with it.
    pub fn new(steps: &[Step], output: Output) -> Result<Self> {
        let mut state = StepCheck::default();
        for (i, step) in steps.iter().enumerate() {
            state.check(step, output).map_err(|error| Error::invalid(format!("step {}: {error}", i + 1)))?;
        }
        let (scale, mean, std) = state.normalize.unwrap_or((1.0, [0.0; 3], [1.0; 3]));
        let value = |channel: usize, value: usize| {
            let number = (value as f32 * scale - mean[channel]) / std[channel];
            match output.datatype {
                Datatype::Fp32 => number.to_le_bytes(),
                Datatype::Fp16 => u32::from(write::half_of_f32(number)).to_le_bytes(),
                Datatype::Uint8 => (value as u32).to_le_bytes(),
            }
        };
        let values = (0..output.colour.channels()).map(|c| std::array::from_fn(|v| value(c, v))).collect();
        let plan = Self { steps: steps.to_vec(), output, values, fill: state.fill.unwrap_or_default(), fixed: None };
        // The picture is as large as the tensor of any plan that has a size of its own.
        let fixed = state.fixed;
        if let Some((width, height)) = fixed {
            plan.check_canvas(width, height)?;
        }
        Ok(Self { fixed, ..plan })
    }

    /// Form of the tensor.
    pub fn output(&self) -> Output {
        self.output
    }

    /// Dims of one row's tensor in the order of the layout, if they are the same for all pictures.
    pub fn fixed_shape(&self) -> Option<[usize; 3]> {
        self.fixed.map(|canvas| self.shape(canvas))
    }

    /// Dims of one row's tensor, in the order of the layout, for a picture of this size (after orientation).
    ///
    /// # Errors
    /// INVALID_ARG: the picture is smaller than what is cut out of it, or the tensor exceeds `pixels_max`.
    pub fn output_shape(&self, width: u32, height: u32) -> Result<[usize; 3]> {
        Ok(self.shape(self.geometry(width, height)?.canvas))
    }

    fn shape(&self, (width, height): (u32, u32)) -> [usize; 3] {
        let (width, height, channels) = (width as usize, height as usize, self.output.colour.channels());
        match self.output.layout {
            Layout::Nchw => [channels, height, width],
            Layout::Nhwc => [height, width, channels],
        }
    }

    /// Writes the tensor of one picture to `out`, all of it. `out` stays the caller's, and after an error its contents
    /// are undefined.
    ///
    /// # Errors
    /// INVALID_ARG as of [`output_shape`](Self::output_shape), and if the picture has another colour than the
    /// output, or `out` another length than the tensor.
    pub fn run(&self, picture: &Picture, out: &mut [u8]) -> Result<Placement> {
        self.run_source(RowSource::Picture(picture), out)
    }

    /// Decodes a file and writes its tensor to `out`, as [`decode`](super::decode) and [`run`](Self::run) do, but
    /// without the picture in memory where the format allows it: a JPEG that is upright is resized while it is
    /// decoded.
    ///
    /// # Errors
    /// INVALID_ARG and INTERNAL as of [`decode`](super::decode), INVALID_ARG as of [`run`](Self::run).
    pub fn run_file(&self, bytes: &[u8], limits: &PictureLimits, out: &mut [u8]) -> Result<Placement> {
        super::with_source(bytes, limits, self.output.colour, |source| self.run_source(source, out))
    }

    fn run_source(&self, source: RowSource<'_>, out: &mut [u8]) -> Result<Placement> {
        let Output { colour, datatype, layout, .. } = self.output;
        if source.colour() != colour {
            return Err(Error::invalid(format!(
                "picture is in {:?}, and the plan expects {colour:?}",
                source.colour()
            )));
        }
        let size = (source.width(), source.height());
        let geometry = self.geometry(size.0, size.1)?;
        let expected = self.shape(geometry.canvas).iter().product::<usize>() * datatype.byte_size();
        if out.len() != expected {
            return Err(Error::invalid(format!("tensor of the picture has {expected} bytes, not {}", out.len())));
        }
        let placement = geometry.placement(size);
        write::tensor(source, geometry, layout, datatype, self.fill, &self.values, out)?;
        Ok(placement)
    }

    fn check_canvas(&self, width: u32, height: u32) -> Result<()> {
        if u64::from(width) * u64::from(height) > self.output.pixels_max {
            let limit = self.output.pixels_max;
            return Err(Error::invalid(format!(
                "tensor of {width} x {height} pixels is too large: at most {limit} are allowed (pixels_max)"
            )));
        }
        Ok(())
    }

    fn geometry(&self, width: u32, height: u32) -> Result<Geometry> {
        let mut geometry = Geometry::new(width, height);
        for step in &self.steps {
            geometry.apply(step)?;
        }
        self.check_canvas(geometry.canvas.0, geometry.canvas.1)?;
        Ok(geometry)
    }
}

/// Facts of a plan after some of its steps.
#[derive(Default)]
struct StepCheck {
    resizes: bool,
    fill: Option<[u8; 3]>,
    normalize: Option<(f32, [f32; 3], [f32; 3])>,
    fixed: Option<(u32, u32)>,
}

impl StepCheck {
    fn check(&mut self, step: &Step, output: Output) -> Result<(), String> {
        if self.normalize.is_some() {
            return Err("normalisation must be the last step".into());
        }
        let is_side = |side: u32| (1..=SIDE_MAX).contains(&side);
        if matches!(step, Step::Resize(..) | Step::Letterbox { .. }) {
            if self.fill.is_some() {
                return Err("borders cannot be resized: put the step before the one that adds them".into());
            }
            if self.resizes {
                return Err("the picture is resized already: one resize or letterbox is possible".into());
            }
            self.resizes = true;
        }
        let (width, height) = match *step {
            Step::Resize(Size::Exact(width, height) | Size::Within(width, height), _)
            | Step::CenterCrop(width, height)
            | Step::Letterbox { width, height, .. } => (width, height),
            Step::Resize(Size::Shortest(side), _) => (side, side),
            Step::Pad { .. } | Step::Normalize { .. } => (1, 1),
        };
        if !is_side(width) || !is_side(height) {
            return Err(format!("size {width} x {height}: a side has 1 to {SIDE_MAX} pixels"));
        }
        match *step {
            Step::Resize(Size::Exact(..), _) => self.fixed = Some((width, height)),
            Step::Resize(..) => self.fixed = None,
            Step::CenterCrop(..) => {
                if let Some((has_width, has_height)) = self.fixed
                    && (has_width < width || has_height < height)
                {
                    return Err(too_small((width, height), (has_width, has_height)));
                }
                self.fixed = Some((width, height));
            }
            Step::Letterbox { stride, colour, .. } => {
                let stride_max = width.min(height);
                if stride.is_some_and(|stride| !(1..=stride_max).contains(&stride)) {
                    return Err(format!("a stride is 1 to {stride_max}, the shorter side"));
                }
                self.fill = Some(colour);
                self.fixed = if stride.is_some() { None } else { Some((width, height)) };
            }
            Step::Pad { left, top, right, bottom, colour } => {
                if [left, top, right, bottom].iter().any(|&border| border > SIDE_MAX) {
                    return Err(format!("a border has at most {SIDE_MAX} pixels"));
                }
                if self.fill.replace(colour).is_some() {
                    return Err("the picture has borders already: one letterbox or pad is possible".into());
                }
                self.fixed = self.fixed.map(|(width, height)| (width + left + right, height + top + bottom));
            }
            Step::Normalize { scale, mean, std } => {
                if output.datatype == Datatype::Uint8 {
                    return Err("UINT8 cannot be normalised: choose FP32 or FP16".into());
                }
                let channels = output.colour.channels();
                let is_number = |x: &f32| x.is_finite();
                if !scale.is_finite() || !mean[..channels].iter().all(is_number) {
                    return Err(format!("scale {scale} and mean {mean:?} must be finite"));
                }
                if !std[..channels].iter().all(|x| x.is_normal()) {
                    return Err(format!("std {std:?} must be finite and not zero"));
                }
                self.normalize = Some((scale, mean, std));
            }
        }
        Ok(())
    }
}
