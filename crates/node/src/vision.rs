//! Pictures, boxes and labels for models in TypeScript: the crate `vision`, with settings as its backends read them.
//!
//! Settings have the names of the backends' parameters in camelCase. Mistakes in them are those of the model, INTERNAL;
//! those in a picture are the client's, INVALID_ARG. Calls run on the model's thread and keep nothing.

use crate::failure::{Result, caught, thrown};
use crate::objects::Setting;
use napi::bindgen_prelude::{BufferSlice, Float32Array, Int32Array, Uint8Array};
use napi_derive::napi;
use tensor::{Error, ShapeDisplay};
use vision::Placement;
use vision::boxes::RowOutput;
use vision::parameters::{self, ImageSettings, Parameters};
use vision::picture::{Colour, Picture, decode};

/// A picture of 8 bits per channel, in rows from the top.
#[napi(object)]
pub struct NativePicture {
    pub width: u32,
    pub height: u32,
    /// `rgb`, `bgr` or `grey`.
    pub color: String,
    pub data: Uint8Array,
}

/// How a picture lies in a tensor: `x * scaleX + offsetX`, in pixels.
#[napi(object)]
pub struct NativePlacement {
    pub scale_x: f64,
    pub scale_y: f64,
    pub offset_x: f64,
    pub offset_y: f64,
    /// Width of the picture after orientation.
    pub width: f64,
    /// Height of the picture after orientation.
    pub height: f64,
}

#[napi(object, object_from_js = false, use_nullable = true)]
pub struct NativePictureTensor {
    /// Elements in little-endian bytes; null if they were written to `to`. Aligned as by `malloc`.
    pub data: Option<Uint8Array>,
    /// `FP32`, `FP16` or `UINT8`.
    pub datatype: String,
    /// Dims of one picture in the order of the layout.
    pub shape: Vec<u32>,
    pub placement: NativePlacement,
}

/// An output of a network as the contents of a tensor.
#[napi(object, object_to_js = false)]
pub struct NetworkOutput {
    pub name: String,
    pub shape: Vec<i64>,
    pub data: Float32Array,
}

#[napi(object, object_from_js = false)]
pub struct NativeBoxes {
    /// x1, y1, x2, y2 of each.
    pub boxes: Float32Array,
    pub scores: Float32Array,
    pub classes: Int32Array,
}

#[napi(object, object_from_js = false)]
pub struct NativeTop {
    pub classes: Int32Array,
    pub scores: Float32Array,
}

const COLOURS: [(&str, Colour); 3] = [("rgb", Colour::Rgb), ("bgr", Colour::Bgr), ("grey", Colour::Grey)];

/// Decodes a file.
#[napi]
pub fn decode_picture(file: &[u8], settings: Vec<Setting>) -> Result<NativePicture> {
    run(&parameters::PICTURE, || {
        let (limits, colour) = read("images.decode", &settings, &parameters::PICTURE, parameters::picture)?;
        let picture = decode(file, &limits, colour)?;
        let color = COLOURS.iter().find(|(_, one)| *one == colour).map_or("", |(name, _)| name).to_owned();
        let (width, height) = (picture.width(), picture.height());
        Ok(NativePicture { width, height, color, data: picture.pixels().to_vec().into() })
    })
}

/// The tensor of a file, or of a picture. It is written to `to`, unless that is empty; `to` stays the caller's, and its
/// contents are undefined after an error.
#[napi]
pub fn picture_tensor(
    file: &[u8],
    picture: Option<NativePicture>,
    settings: Vec<Setting>,
    mut to: BufferSlice<'_>,
) -> Result<NativePictureTensor> {
    run(&parameters::IMAGE, || {
        let ImageSettings { plan, limits } = read("images.tensor", &settings, &parameters::IMAGE, parameters::image)?;
        let (from, into) = (file.as_ptr_range(), to.as_ptr_range());
        if from.start < into.end && into.start < from.end {
            return Err(Error::internal("the tensor would be written over the bytes that it is made of"));
        }
        let output = plan.output();
        let picture = match picture {
            None => decode(file, &limits, output.colour)?,
            Some(NativePicture { width, height, color, data }) => {
                let unknown =
                    || Error::internal(format!("color of the picture is '{color}': expected rgb, bgr or grey"));
                let (_, colour) = *COLOURS.iter().find(|(name, _)| *name == color).ok_or_else(unknown)?;
                Picture::new(width, height, colour, data.to_vec()).map_err(|e| of_model(&e))?
            }
        };
        let shape = plan.output_shape(picture.width(), picture.height())?;
        let bytes = shape.iter().product::<usize>() * output.datatype.byte_size();
        // The picture fits the plan; what is rejected now came from the model: another colour or length of `to`.
        let (placement, data) = if to.is_empty() {
            let mut data = vec![0; bytes];
            (plan.run(&picture, &mut data), Some(data.into()))
        } else {
            (plan.run(&picture, &mut to), None)
        };
        let placement = placement.map_err(|e| of_model(&e))?;
        Ok(NativePictureTensor {
            data,
            datatype: output.datatype.in_protocol().name().to_owned(),
            shape: shape.iter().map(|&dim| dim as u32).collect(),
            placement: NativePlacement {
                scale_x: placement.scale_x.into(),
                scale_y: placement.scale_y.into(),
                offset_x: placement.offset_x.into(),
                offset_y: placement.offset_y.into(),
                width: placement.width.into(),
                height: placement.height.into(),
            },
        })
    })
}

/// The boxes of picture `row` in the outputs of a detection network, which may have one picture only without it.
#[napi]
pub fn decode_boxes(
    outputs: Vec<NetworkOutput>,
    row: Option<u32>,
    placement: Option<NativePlacement>,
    settings: Vec<Setting>,
) -> Result<NativeBoxes> {
    run(&parameters::BOXES, || {
        let (decoder, settings) = read("boxes.decode", &settings, &parameters::BOXES, parameters::boxes)?;
        let ranks = decoder.layout.ranks().chain(std::iter::repeat(0));
        let rows: Vec<_> =
            outputs.iter().zip(ranks).map(|(output, rank)| row_of(output, rank, row)).collect::<Fallible<_>>()?;
        let placement = match placement {
            Some(p) => Placement {
                scale_x: p.scale_x as f32,
                scale_y: p.scale_y as f32,
                offset_x: p.offset_x as f32,
                offset_y: p.offset_y as f32,
                width: p.width as f32,
                height: p.height as f32,
            },
            None => decoder.unplaced(),
        };
        let found = decoder.decode(&rows, &placement, &settings)?;
        let classes: Vec<_> = found.classes.iter().map(|&class| class as i32).collect();
        let boxes = found.boxes.into_flattened();
        Ok(NativeBoxes { boxes: boxes.into(), scores: found.scores.into(), classes: classes.into() })
    })
}

/// The classes with the greatest scores of picture `row`, as of `decodeBoxes`.
#[napi]
pub fn top_classes(output: NetworkOutput, row: Option<u32>, settings: Vec<Setting>) -> Result<NativeTop> {
    run(&parameters::LABELS, || {
        let (activation, count) = read("labels.top", &settings, &parameters::LABELS, parameters::labels)?;
        let top = vision::labels::top(row_of(&output, 1, row)?.data, activation, count);
        let classes: Vec<_> = top.classes.iter().map(|&class| class as i32).collect();
        Ok(NativeTop { classes: classes.into(), scores: top.scores.into() })
    })
}

type Fallible<T> = tensor::Result<T>;

/// Runs a call. Its errors have the names of parameters that TypeScript uses.
fn run<T>(known: &[&str], work: impl FnOnce() -> Fallible<T>) -> Result<T> {
    caught(work).map_err(|error| {
        let spelled = known.iter().fold(error.message().to_owned(), |text, name| text.replace(name, &camel(name)));
        thrown(&Error::new(error.code(), spelled))
    })
}

/// Reads settings, whose mistakes are the model's.
fn read<T>(
    owner: &str,
    settings: &[Setting],
    known: &[&str],
    read: impl FnOnce(&Parameters<'_>) -> Fallible<T>,
) -> Fallible<T> {
    let snake = |key: &'_ str| known.iter().find(|name| camel(name) == key).copied();
    let texts = settings.iter().map(|one| (snake(&one.key).unwrap_or(&*one.key), &*one.value));
    Parameters::new(owner, texts, known).and_then(|texts| read(&texts)).map_err(|e| of_model(&e))
}

fn of_model(error: &Error) -> Error {
    Error::internal(error.message().to_owned())
}

fn camel(name: &str) -> String {
    let (first, rest) = name.split_once('_').unwrap_or((name, ""));
    let rest = rest.split('_').filter_map(|word| word.split_at_checked(1));
    rest.fold(first.to_owned(), |text, (letter, more)| text + &letter.to_uppercase() + more)
}

/// Picture `row` of an output whose rows have `rank` dims.
fn row_of(output: &NetworkOutput, rank: usize, row: Option<u32>) -> Fallible<RowOutput<'_>> {
    let NetworkOutput { name, shape, data } = output;
    let (rows, shape_of_row) = match shape.split_first() {
        Some((&rows, rest)) if rest.len() == rank => (usize::try_from(rows).unwrap_or(0), rest),
        _ => (1, &**shape),
    };
    let at = match row {
        Some(row) if (row as usize) < rows => row as usize,
        None if rows == 1 => 0,
        _ => {
            let row = row.map_or("none is chosen".to_owned(), |row| format!("{row} is not one of them"));
            let shape = ShapeDisplay(shape);
            return Err(Error::internal(format!("output '{name}' of shape {shape} has {rows} rows, and {row}")));
        }
    };
    let length = data.len() / rows;
    Ok(RowOutput { name, shape: shape_of_row, data: &data[at * length..][..length] })
}
