//! Steps from a picture to a tensor, validated once and run for each picture.
//!
//! Steps are folded to one geometry: which part of the picture is made how large, and where it lies on the canvas of
//! the tensor. A run resizes, crops, pads and normalises row by row, and keeps no picture in between.

use super::resize::Window;
use super::write::{self, Value};
use super::{Colour, Picture};
use std::ops::Range;
use tensor::{Error, Result};

/// Weights of the source pixels of which a resized one is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    /// Linear between two pixels.
    Bilinear,
    /// Keys' cubic between four pixels: slope -0.5 with `antialias`, as in Pillow, and -0.75 without, as in OpenCV.
    Bicubic,
    /// Mean of pixels: Pillow's `BOX` with `antialias`, which takes whole pixels, and OpenCV's `INTER_AREA` without,
    /// which takes parts of them.
    Area,
}

/// How pixels are made of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resample {
    /// Form of the weights.
    pub filter: Filter,
    /// Whether the filter widens when the picture shrinks, as in Pillow, torchvision (`antialias=True`) and
    /// transformers. Without, as in OpenCV (`INTER_LINEAR`, `INTER_CUBIC`, `INTER_AREA`) and ultralytics.
    pub antialias: bool,
}

/// Size that a picture is resized to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Width and height, whatever the aspect ratio.
    Exact(u32, u32),
    /// Length of the shorter side; the longer one keeps the aspect ratio and is rounded down, as in torchvision.
    Shortest(u32),
    /// Largest size of the same aspect ratio within a width and height. Sides are rounded to the nearest, ties to even.
    Within(u32, u32),
}

/// A step of a [`Plan`]. Colours have one value per channel, in the order of the output's [`Colour`]; of a grey one,
/// the first counts.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Resizes the picture.
    Resize(Size, Resample),
    /// Cuts a width and height out of the middle; an odd rest is shared as in torchvision, half to even.
    CenterCrop(u32, u32),
    /// Resizes to the largest size within a width and height, and adds borders around it, as ultralytics does.
    Letterbox {
        /// Width of the tensor; with `stride`, the most.
        width: u32,
        /// Height of the tensor; with `stride`, the most.
        height: u32,
        /// Makes borders only so large that both sides are multiples of this (`auto=True`).
        stride: Option<u32>,
        /// Whether a smaller picture is enlarged (`scaleup`).
        enlarge: bool,
        /// Colour of borders.
        colour: [u8; 3],
        /// How pixels are made.
        resample: Resample,
    },
    /// Adds borders.
    Pad {
        /// Columns on the left.
        left: u32,
        /// Rows on top.
        top: u32,
        /// Columns on the right.
        right: u32,
        /// Rows at the bottom.
        bottom: u32,
        /// Colour of borders.
        colour: [u8; 3],
    },
    /// `(value * scale - mean) / std`, in 32 bits and this order. Borders are normalised as well.
    Normalize {
        /// Usually `1.0 / 255.0`.
        scale: f32,
        /// Per channel.
        mean: [f32; 3],
        /// Per channel, not zero.
        std: [f32; 3],
    },
}

/// Order of a tensor's dims, without its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Channels, height, width.
    Nchw,
    /// Height, width, channels.
    Nhwc,
}

/// Datatype of a tensor's elements, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datatype {
    /// 32 bits.
    Fp32,
    /// 16 bits, rounded to the nearest, ties to even.
    Fp16,
    /// 8 bits, as in the picture: not with [`Step::Normalize`].
    Uint8,
}

impl Datatype {
    /// Bytes per element.
    pub fn byte_size(self) -> usize {
        match self {
            Self::Fp32 => 4,
            Self::Fp16 => 2,
            Self::Uint8 => 1,
        }
    }
}

/// Form of the tensor that a [`Plan`] writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    /// Channels; pictures are decoded to the same.
    pub colour: Colour,
    /// Order of dims.
    pub layout: Layout,
    /// Type of elements.
    pub datatype: Datatype,
    /// Most pixels of one tensor. A plan whose size depends on the picture refuses pictures that would need more.
    pub pixels_max: u64,
}

/// What leads from positions in the tensor back to those in the picture: a position `x` in the picture is
/// `x * scale_x + offset_x` in the tensor, where both count from the outer edge of the first pixel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Placement {
    /// Tensor pixels per picture pixel.
    pub scale_x: f32,
    /// Tensor pixels per picture pixel.
    pub scale_y: f32,
    /// Where the picture's left edge lies in the tensor; negative if it is cut off.
    pub offset_x: f32,
    /// Where the picture's upper edge lies in the tensor; negative if it is cut off.
    pub offset_y: f32,
    /// Width of the picture after orientation.
    pub width: i32,
    /// Height of the picture after orientation.
    pub height: i32,
}

/// Longest side that a picture is resized to before it is cut.
const SIDE_MAX: u32 = 1 << 24;

/// Steps that were validated, and what they share for all pictures.
#[derive(Clone, Debug)]
pub struct Plan {
    steps: Vec<Step>,
    output: Output,
    /// Value of the tensor by channel and value of the picture.
    values: Vec<[Value; 256]>,
    fill: [u8; 3],
    fixed: Option<(u32, u32)>,
}

/// Where a picture lies on the canvas of the tensor: the window of it is resized, and the upper left corner of the
/// result lies at the offset.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub window: Window,
    pub resized: (u32, u32),
    /// How the window is resized; none if it is as large.
    pub resample: Option<Resample>,
    pub offset: (i64, i64),
    pub canvas: (u32, u32),
    /// Columns and rows of the canvas that show the picture; the others are borders, also where a part of the picture
    /// that was cut off would lie.
    pub shown: (Range<u32>, Range<u32>),
}

impl Plan {
    /// Validates steps. They run in their order; at most one resizes (resize, letterbox) and one adds borders
    /// (letterbox, pad), borders are not resized, and normalisation comes last.
    ///
    /// # Errors
    /// INVALID_ARG with the number of the step, from 1, and what is wrong with it.
    pub fn new(steps: &[Step], output: Output) -> Result<Self> {
        let mut state = State::default();
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
    /// As of [`output_shape`](Self::output_shape); and INVALID_ARG if the picture has another [`Colour`] than the
    /// output, or `out` another length than the tensor.
    pub fn run(&self, picture: &Picture, out: &mut [u8]) -> Result<Placement> {
        let Output { colour, datatype, layout, .. } = self.output;
        if picture.colour() != colour {
            return Err(Error::invalid(format!(
                "picture is in {:?}, and the plan expects {colour:?}",
                picture.colour()
            )));
        }
        let geometry = self.geometry(picture.width(), picture.height())?;
        let expected = self.shape(geometry.canvas).iter().product::<usize>() * datatype.byte_size();
        if out.len() != expected {
            return Err(Error::invalid(format!("tensor of the picture has {expected} bytes, not {}", out.len())));
        }
        let placement = geometry.placement(picture);
        write::tensor(picture, geometry, layout, datatype, self.fill, &self.values, out);
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
        let mut geometry = Geometry {
            window: Window { left: 0, top: 0, width, height },
            resized: (width, height),
            resample: None,
            offset: (0, 0),
            canvas: (width, height),
            shown: (0..width, 0..height),
        };
        for step in &self.steps {
            geometry.apply(step)?;
        }
        self.check_canvas(geometry.canvas.0, geometry.canvas.1)?;
        Ok(geometry)
    }
}

/// What is known of a plan after some of its steps.
#[derive(Default)]
struct State {
    resizes: bool,
    fill: Option<[u8; 3]>,
    normalize: Option<(f32, [f32; 3], [f32; 3])>,
    fixed: Option<(u32, u32)>,
}

impl State {
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

fn too_small((width, height): (u32, u32), has: (u32, u32)) -> String {
    format!("{width} x {height} pixels cannot be cut out of {} x {}: resize before, or pad", has.0, has.1)
}

impl Geometry {
    fn apply(&mut self, step: &Step) -> Result<()> {
        match *step {
            Step::Resize(size, resample) => {
                let (width, height) = self.canvas;
                let to = match size {
                    Size::Exact(width, height) => (width, height),
                    Size::Shortest(side) => {
                        let longer = |long: u32, short: u32| u64::from(side) * u64::from(long) / u64::from(short);
                        let longer = |long, short| longer(long, short).min(u64::from(u32::MAX)) as u32;
                        if width <= height { (side, longer(height, width)) } else { (longer(width, height), side) }
                    }
                    Size::Within(most_width, most_height) => within(self.canvas, (most_width, most_height), true),
                };
                self.resize(to, resample)?;
            }
            Step::CenterCrop(width, height) => {
                let has = self.canvas;
                if has.0 < width || has.1 < height {
                    return Err(Error::invalid(format!("picture: {}", too_small((width, height), has))));
                }
                let start = |has: u32, wanted: u32| (f64::from(has - wanted) / 2.0).round_ties_even() as i64;
                let (x, y) = (start(has.0, width), start(has.1, height));
                self.offset = (self.offset.0 - x, self.offset.1 - y);
                self.canvas = (width, height);
                let cut = |shown: &Range<u32>, start: i64, length: u32| {
                    let inside = |at: u32| (i64::from(at) - start).clamp(0, length.into()) as u32;
                    inside(shown.start)..inside(shown.end)
                };
                self.shown = (cut(&self.shown.0, x, width), cut(&self.shown.1, y, height));
            }
            Step::Letterbox { width, height, stride, enlarge, resample, .. } => {
                let to = within(self.canvas, (width, height), enlarge);
                self.resize(to, resample)?;
                // Half of the rest, an odd pixel at the end.
                let rest = |most: u32, has: u32| stride.map_or(most - has, |stride| (most - has) % stride);
                let (x, y) = (rest(width, to.0), rest(height, to.1));
                let before = |rest: u32| (f64::from(rest) / 2.0 - 0.1).round_ties_even() as i64;
                self.offset = (before(x), before(y));
                self.canvas = (to.0 + x, to.1 + y);
                let (left, top) = (self.offset.0 as u32, self.offset.1 as u32);
                self.shown = (left..left + to.0, top..top + to.1);
            }
            Step::Pad { left, top, right, bottom, .. } => {
                let sum = |a: u32, b: u32, c: u32| {
                    let side = u64::from(a) + u64::from(b) + u64::from(c);
                    u32::try_from(side).map_err(|_| Error::invalid(format!("side of {side} pixels is too long")))
                };
                self.canvas = (sum(self.canvas.0, left, right)?, sum(self.canvas.1, top, bottom)?);
                self.offset = (self.offset.0 + i64::from(left), self.offset.1 + i64::from(top));
                let moved = |shown: &Range<u32>, border: u32| shown.start + border..shown.end + border;
                self.shown = (moved(&self.shown.0, left), moved(&self.shown.1, top));
            }
            Step::Normalize { .. } => {}
        }
        Ok(())
    }

    /// Resizes the canvas, which has no borders yet: what was cut off before is cut off the source.
    fn resize(&mut self, to: (u32, u32), resample: Resample) -> Result<()> {
        if to.0.max(to.1) > SIDE_MAX {
            return Err(Error::invalid(format!(
                "picture of {} x {} pixels would be resized to {} x {}: a side has at most {SIDE_MAX} pixels",
                self.canvas.0, self.canvas.1, to.0, to.1
            )));
        }
        let (left, top) = (-self.offset.0, -self.offset.1);
        self.window = Window { left: left as u32, top: top as u32, width: self.canvas.0, height: self.canvas.1 };
        (self.resized, self.canvas, self.offset) = (to, to, (0, 0));
        self.shown = (0..to.0, 0..to.1);
        self.resample = Some(resample);
        Ok(())
    }

    fn placement(&self, picture: &Picture) -> Placement {
        let axis = |to: u32, from: u32, start: u32, offset: i64| {
            let scale = f64::from(to) / f64::from(from);
            (scale as f32, (offset as f64 - f64::from(start) * scale) as f32)
        };
        let (scale_x, offset_x) = axis(self.resized.0, self.window.width, self.window.left, self.offset.0);
        let (scale_y, offset_y) = axis(self.resized.1, self.window.height, self.window.top, self.offset.1);
        let side = |side: u32| i32::try_from(side).unwrap_or(i32::MAX);
        let (width, height) = (side(picture.width()), side(picture.height()));
        Placement { scale_x, scale_y, offset_x, offset_y, width, height }
    }
}

/// Largest size of the same aspect ratio within another; not larger than the picture unless `enlarge`.
fn within((width, height): (u32, u32), most: (u32, u32), enlarge: bool) -> (u32, u32) {
    let ratio = (f64::from(most.0) / f64::from(width)).min(f64::from(most.1) / f64::from(height));
    let ratio = if enlarge { ratio } else { ratio.min(1.0) };
    let side = |side: u32, most: u32| ((f64::from(side) * ratio).round_ties_even() as u32).clamp(1, most);
    (side(width, most.0), side(height, most.1))
}
