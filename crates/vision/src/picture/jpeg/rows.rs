//! Rows of a JPEG of luma, or of luma and chroma, made as its rows of blocks are decoded: the planes of a few rows are
//! all that is in memory, except for progressive files, whose coefficients the decoder keeps.

use super::super::pixels::{Colour, PictureLimits};
use super::colours::{ChromaRows, RowConverter, Subsampling};
use super::{ColorSpace, FORMAT, JpegDecoder, ZCursor, damaged, rejected};
use tensor::Result;
use zune_jpeg::{PlaneInfo, RawImcuRowStatus};

/// A picture that is decoded row by row, from the top of the file: its orientation is not applied.
pub struct JpegRows<'a> {
    decoder: Box<JpegDecoder<ZCursor<&'a [u8]>>>,
    limits: PictureLimits,
    pub width: u32,
    pub height: u32,
    pub colour: Colour,
    subsampling: Subsampling,
    /// Luma, and two of chroma or none.
    planes: Vec<PlaneRows>,
    converter: RowConverter,
    /// The next row.
    y: usize,
}

impl<'a> JpegRows<'a> {
    /// The rows of a file whose headers are decoded. Gives the decoder back if it has planes that are not read here:
    /// other colours, or a subsampling that is not by 1 or 2.
    pub fn new(
        mut decoder: Box<JpegDecoder<ZCursor<&'a [u8]>>>,
        (width, height): (u32, u32),
        colour: Colour,
        limits: &PictureLimits,
    ) -> std::result::Result<Self, Box<JpegDecoder<ZCursor<&'a [u8]>>>> {
        let space = decoder.input_colorspace();
        let session = decoder.raw_output();
        let layout = session.layout().unwrap_or_default();
        let layout = &layout[..session.num_components().unwrap_or(0)];
        drop(session);
        let Some(subsampling) = subsampling(space, layout) else { return Err(decoder) };
        Ok(Self {
            decoder,
            limits: *limits,
            width,
            height,
            colour,
            subsampling,
            planes: layout.iter().map(PlaneRows::new).collect(),
            converter: RowConverter::new(layout.last().map_or(0, |plane| plane.width)),
            y: 0,
        })
    }

    /// Writes the next row, of `width * channels` bytes, or passes over it.
    ///
    /// # Errors
    /// INVALID_ARG if the file is damaged or ends within the picture.
    pub fn next(&mut self, out: Option<&mut [u8]>) -> Result<()> {
        let (y, down) = (self.y, self.subsampling.down);
        let near = y / down;
        let is_far_above = down == 2 && y.is_multiple_of(2);
        let far = if is_far_above { near.saturating_sub(1) } else { near + down - 1 };
        // The row below may begin the next row of blocks.
        while self.planes[0].lacks(y) || self.planes.last().is_some_and(|plane| plane.lacks(far)) {
            self.decode()?;
        }
        self.y += 1;
        let Some(out) = out else { return Ok(()) };
        let luma = self.planes[0].row(y);
        match &self.planes[1..] {
            [blue, red] if self.colour != Colour::Grey => {
                let chroma =
                    [blue, red].map(|plane| ChromaRows { near: plane.row(near), far: plane.row(far), is_far_above });
                self.converter.convert(luma, chroma, self.subsampling, self.colour, out);
            }
            _ if self.colour == Colour::Grey => out.copy_from_slice(luma),
            _ => out.as_chunks_mut().0.iter_mut().zip(luma).for_each(|(pixel, &luma)| *pixel = [luma; 3]),
        }
        Ok(())
    }

    /// Decodes a row of blocks.
    fn decode(&mut self) -> Result<()> {
        self.planes.iter_mut().for_each(PlaneRows::advance);
        let strides: Vec<usize> = self.planes.iter().map(|plane| plane.stride).collect();
        let mut targets: Vec<&mut [u8]> =
            self.planes.iter_mut().map(|plane| &mut plane.bytes[KEPT * plane.stride..]).collect();
        let status = self.decoder.raw_output().decode_next_imcu_row(&mut targets, &strides);
        match status.map_err(|error| rejected(error, &self.limits, (self.width, self.height)))? {
            RawImcuRowStatus::RowReady { rows_written } => {
                self.planes.iter_mut().zip(rows_written).for_each(|(plane, rows)| plane.count = rows);
                Ok(())
            }
            _ => Err(damaged(FORMAT, "its data ends within the picture")),
        }
    }
}

/// The subsampling of planes that can be read here: luma is not subsampled, and both planes of chroma are alike.
fn subsampling(space: Option<ColorSpace>, planes: &[PlaneInfo]) -> Option<Subsampling> {
    let factors = |plane: &PlaneInfo| (plane.horizontal_sampling_factor, plane.vertical_sampling_factor);
    match (space?, planes) {
        (ColorSpace::Luma, [_]) => Some(Subsampling { across: 1, down: 1 }),
        (ColorSpace::YCbCr, [luma, blue, red]) if factors(blue) == factors(red) => {
            let ratio = |most: usize, own: usize| [1, 2].into_iter().find(|ratio| own * ratio == most);
            let ((most_across, most_down), (across, down)) = (factors(luma), factors(blue));
            Some(Subsampling { across: ratio(most_across, across)?, down: ratio(most_down, down)? })
        }
        _ => None,
    }
}

/// The last row of luma waits for chroma of the next row of blocks, whose filter needs chroma of this one.
const KEPT: usize = 1;

/// Rows of one plane: those of a row of blocks, after the last ones before.
struct PlaneRows {
    bytes: Vec<u8>,
    stride: usize,
    width: usize,
    /// Rows of the whole plane.
    height: usize,
    /// Row of the plane that follows the kept ones.
    start: usize,
    /// Rows that were decoded last.
    count: usize,
}

impl PlaneRows {
    fn new(plane: &PlaneInfo) -> Self {
        let rows = plane.vertical_sampling_factor * 8;
        let (stride, width, height) = (plane.stride, plane.width, plane.height);
        Self { bytes: vec![0; stride * (KEPT + rows)], stride, width, height, start: 0, count: 0 }
    }

    /// Keeps the last rows; the others make room.
    fn advance(&mut self) {
        let last = self.count * self.stride;
        self.bytes.copy_within(last..last + KEPT * self.stride, 0);
        self.start += self.count;
        self.count = 0;
    }

    /// Whether a row is not decoded yet.
    fn lacks(&self, y: usize) -> bool {
        y.min(self.height - 1) >= self.start + self.count
    }

    /// A row; beyond the lower edge, the one at the edge.
    fn row(&self, y: usize) -> &[u8] {
        let at = y.min(self.height - 1) + KEPT - self.start;
        &self.bytes[at * self.stride..][..self.width]
    }
}
