//! Entry points of the fuzzers. No input may cause a panic. Public for the fuzz package only.

use crate::picture::{
    Align, Colour, Datatype, Filter, Layout, Output, Picture, PictureLimits, PicturePlan, Resample, Size, Step, decode,
};
use tensor::Code;

/// Decodes a picture with small limits and runs a plan on it, which its last eight bytes choose: a file of a picture
/// is an input as it is. All of the tensor must be written.
pub fn picture(data: &[u8]) {
    let limits = PictureLimits { pixels_max: 1 << 16, side_max: 1 << 12, scans_max: 8, scan_pixels_max: 1 << 17 };
    let choice = *data.last_chunk::<8>().unwrap_or(&[0; 8]);
    let colour = [Colour::Rgb, Colour::Bgr, Colour::Grey][usize::from(choice[0] % 3)];
    let picture = match decode(data, &limits, colour) {
        Ok(picture) => picture,
        // Another code is a panic of a library.
        Err(error) => return assert_eq!(error.code(), Code::InvalidArg, "{error}"),
    };
    let (width, height) = (picture.width(), picture.height());
    assert!(width <= limits.side_max && height <= limits.side_max);
    assert!(u64::from(width) * u64::from(height) <= limits.pixels_max);
    run(&picture, choice);
}

fn run(picture: &Picture, [_, kind, steps, a, b, c, d, e]: [u8; 8]) {
    let (width, height) = (u32::from(a) + 1, u32::from(b) + 1);
    let resample = Resample {
        filter: [Filter::Bilinear, Filter::Bicubic, Filter::Area, Filter::Lanczos][usize::from(kind % 4)],
        antialias: kind & 0x80 != 0,
    };
    let colour = [c, d, e];
    let crop = Step::CenterCrop(u32::from(c), u32::from(d));
    let pad = Step::Pad { left: c.into(), top: d.into(), right: e.into(), bottom: 1, colour };
    let stride = (e > 0).then_some(e.into());
    let align = if c & 2 == 0 { Align::Center } else { Align::UpperLeft };
    let letterbox = Step::Letterbox { width, height, stride, enlarge: c & 1 == 0, align, colour, resample };
    let resize = |size| Step::Resize(size, resample);
    let mut steps = match steps % 8 {
        0 => vec![resize(Size::Exact(width, height))],
        1 => vec![resize(Size::Shortest(width)), crop],
        2 => vec![resize(Size::Within(width, height)), pad],
        3 => vec![letterbox],
        4 => vec![letterbox, crop],
        5 => vec![crop, resize(Size::Exact(width, height)), pad],
        6 => vec![pad, crop],
        _ => vec![],
    };
    let datatype = [Datatype::Fp32, Datatype::Fp16, Datatype::Uint8][usize::from(kind / 3 % 3)];
    if datatype != Datatype::Uint8 {
        steps.push(Step::Normalize { scale: 1.0 / 255.0, mean: [0.5; 3], std: [0.25; 3] });
    }
    let layout = if kind & 0x40 == 0 { Layout::Nchw } else { Layout::Nhwc };
    let output = Output { colour: picture.colour(), layout, datatype, pixels_max: 1 << 17 };
    let Ok(plan) = PicturePlan::new(&steps, output) else { return };
    let shape = plan.output_shape(picture.width(), picture.height());
    if let (Some(fixed), Ok(shape)) = (plan.fixed_shape(), &shape) {
        assert_eq!(&fixed, shape);
    }
    let Ok(shape) = shape else { return };
    let byte_size = shape.iter().product::<usize>() * datatype.byte_size();
    // Bytes that are not written differ.
    let [first, second] = [0x5a, 0xa5].map(|byte| {
        let mut out = vec![byte; byte_size];
        plan.run(picture, &mut out).expect("a tensor of the shape that the plan announced");
        out
    });
    assert!(first == second);
}
