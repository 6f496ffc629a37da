//! The first frame of a GIF, by `gif`. Transparency is dropped, and what the frame leaves free is background.

use super::pixels::{Colour, Picture, PictureLimits, damaged};
use gif::{ColorOutput, DecodeOptions};
use tensor::Result;

const FORMAT: &str = "GIF";

/// The picture, of the size of the GIF's screen.
pub fn decode(bytes: &[u8], limits: &PictureLimits) -> Result<Picture> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    // A frame within the screen has no more pixels than that.
    options.check_frame_consistency(true);
    let mut decoder = options.read_info(bytes).map_err(|error| damaged(FORMAT, error))?;
    let (width, height) = limits.check(FORMAT, decoder.width().into(), decoder.height().into())?;
    let frame = decoder.next_frame_info().map_err(|error| damaged(FORMAT, error))?;
    let frame = frame.ok_or_else(|| damaged(FORMAT, "it has no frame: it is truncated"))?;
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let frame_width = usize::from(frame.width);
    let mut indices = vec![0; frame_width * usize::from(frame.height)];
    if indices.is_empty() {
        return Err(damaged(FORMAT, "its first frame has no pixels"));
    }
    decoder.read_into_buffer(&mut indices).map_err(|error| damaged(FORMAT, error))?;

    let colour_of = |palette: &[u8], index: usize| palette.as_chunks::<3>().0.get(index).copied().unwrap_or_default();
    let palette = decoder.palette().map_err(|error| damaged(FORMAT, error))?;
    let colours: [[u8; 3]; 256] = std::array::from_fn(|index| colour_of(palette, index));
    let background = decoder.bg_color().zip(decoder.global_palette());
    let background = background.map_or([0; 3], |(index, palette)| colour_of(palette, index));

    let mut pixels = vec![background; width as usize * height as usize];
    let rows = pixels.chunks_exact_mut(width as usize).skip(top);
    for (row, indices) in rows.zip(indices.chunks_exact(frame_width)) {
        let row = row.iter_mut().skip(left);
        row.zip(indices).for_each(|(pixel, &index)| *pixel = colours[usize::from(index)]);
    }
    Picture::new(width, height, Colour::Rgb, pixels.into_flattened())
}
