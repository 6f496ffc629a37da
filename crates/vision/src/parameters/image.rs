//! From texts to the plan of a picture's tensor.

use super::{Parameters, size};
use crate::picture::{
    Align, Colour, Datatype, Filter, Layout, Output, PIXELS_MAX, PictureLimits, PicturePlan, Resample, Size, Step,
};
use tensor::{Error, Result};

/// Parameters of [`picture`].
pub const PICTURE: [&str; 3] = ["color", "pixels_max", "side_max"];

/// Parameters of [`image`].
pub const IMAGE: [&str; 18] = [
    "color",
    "resize",
    "interpolation",
    "antialias",
    "center_crop",
    "letterbox",
    "letterbox_color",
    "stride",
    "enlarge",
    "placement",
    "pad",
    "scale",
    "mean",
    "std",
    "layout",
    "datatype",
    "pixels_max",
    "side_max",
];

/// Plan and limits.
#[derive(Debug)]
pub struct ImageSettings {
    /// The steps.
    pub plan: PicturePlan,
    /// PictureLimits of the file.
    pub limits: PictureLimits,
}

/// Limits of a picture, and its channels.
///
/// # Errors
/// INVALID_ARG with the parameter, what was expected and found.
pub fn picture(parameters: &Parameters<'_>) -> Result<(PictureLimits, Colour)> {
    let colours = [("rgb", Colour::Rgb), ("bgr", Colour::Bgr), ("grey", Colour::Grey), ("gray", Colour::Grey)];
    let usual = PictureLimits::default();
    let pixels_max = parameters.number("pixels_max")?.unwrap_or(usual.pixels_max);
    if !(1..=PIXELS_MAX).contains(&pixels_max) {
        return Err(Error::invalid(format!("parameter 'pixels_max': expected 1 to {PIXELS_MAX}, got {pixels_max}")));
    }
    let mut limits = PictureLimits { pixels_max, ..usual };
    if let Some(side_max) = parameters.number("side_max")? {
        limits.side_max = side_max;
    }
    Ok((limits, parameters.choice("color", &colours)?.unwrap_or(Colour::Rgb)))
}

/// The plan of a picture's tensor. Steps run in the order of [`IMAGE`].
///
/// # Errors
/// INVALID_ARG with the parameter, what was expected and found, or with the error of the plan.
pub fn image(parameters: &Parameters<'_>) -> Result<ImageSettings> {
    let filters = [
        ("bilinear", Filter::Bilinear),
        ("bicubic", Filter::Bicubic),
        ("lanczos", Filter::Lanczos),
        ("area", Filter::Area),
    ];
    let aligns = [("center", Align::Center), ("upper_left", Align::UpperLeft)];
    let layouts = [("nchw", Layout::Nchw), ("nhwc", Layout::Nhwc)];
    let datatypes = [("fp32", Datatype::Fp32), ("fp16", Datatype::Fp16), ("uint8", Datatype::Uint8)];
    let (limits, colour) = picture(parameters)?;
    let resample = Resample {
        filter: parameters.choice("interpolation", &filters)?.unwrap_or(Filter::Bilinear),
        antialias: parameters.flag("antialias", true)?,
    };
    let datatype = parameters.choice("datatype", &datatypes)?.unwrap_or(Datatype::Fp32);
    let mut steps = Vec::new();
    if let Some(size) = parameters.read("resize", "640x480, shortest:256 or within:640x480", resize)? {
        steps.push(Step::Resize(size, resample));
    }
    if let Some((width, height)) = parameters.size("center_crop")? {
        steps.push(Step::CenterCrop(width, height));
    }
    if let Some((width, height)) = parameters.size("letterbox")? {
        steps.push(Step::Letterbox {
            width,
            height,
            stride: parameters.number("stride")?,
            enlarge: parameters.flag("enlarge", true)?,
            align: parameters.choice("placement", &aligns)?.unwrap_or(Align::Center),
            colour: parameters.numbers("letterbox_color")?.unwrap_or([114; 3]),
            resample,
        });
    }
    if let Some([left, top, right, bottom]) = parameters.numbers("pad")? {
        let colour = parameters.numbers("letterbox_color")?.unwrap_or([0; 3]);
        steps.push(Step::Pad { left, top, right, bottom, colour });
    }
    let scale = parameters.read("scale", "a number, or a fraction (1/255)", fraction)?;
    let (mean, std) = (parameters.numbers("mean")?, parameters.numbers("std")?);
    let is_normalized = datatype != Datatype::Uint8 || scale.is_some() || mean.is_some() || std.is_some();
    if is_normalized {
        let (mean, std) = (mean.unwrap_or([0.0; 3]), std.unwrap_or([1.0; 3]));
        steps.push(Step::Normalize { scale: scale.unwrap_or(1.0 / 255.0), mean, std });
    }
    let layout = parameters.choice("layout", &layouts)?.unwrap_or(Layout::Nchw);
    let output = Output { colour, layout, datatype, pixels_max: limits.pixels_max };
    Ok(ImageSettings { plan: PicturePlan::new(&steps, output)?, limits })
}

fn resize(text: &str) -> Option<Size> {
    match text.split_once(':') {
        None => size(text).map(|(width, height)| Size::Exact(width, height)),
        Some(("shortest", side)) => side.trim().parse().ok().map(Size::Shortest),
        Some(("within", rest)) => size(rest.trim()).map(|(width, height)| Size::Within(width, height)),
        Some(_) => None,
    }
}

fn fraction(text: &str) -> Option<f32> {
    match text.split_once('/') {
        None => text.parse().ok(),
        Some((above, below)) => Some(above.trim().parse::<f32>().ok()? / below.trim().parse::<f32>().ok()?),
    }
}
