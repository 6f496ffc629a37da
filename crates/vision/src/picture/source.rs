//! Rows that a resizer reads: of a picture in memory, or of a file that is decoded meanwhile.

use super::jpeg::JpegRows;
use super::pixels::{Colour, Picture};
use std::ops::Range;
use tensor::Result;

/// Rows of pixels. They are asked for from the top downwards.
pub enum RowSource<'a> {
    Picture(&'a Picture),
    Jpeg(Box<JpegWindow<'a>>),
}

impl<'a> RowSource<'a> {
    pub fn jpeg(rows: JpegRows<'a>) -> Self {
        Self::Jpeg(Box::new(JpegWindow { rows, bytes: Vec::new(), first: 0, past: 0, dropped: 0 }))
    }

    pub fn width(&self) -> u32 {
        match self {
            Self::Picture(picture) => picture.width,
            Self::Jpeg(window) => window.rows.width,
        }
    }

    pub fn height(&self) -> u32 {
        match self {
            Self::Picture(picture) => picture.height,
            Self::Jpeg(window) => window.rows.height,
        }
    }

    pub fn colour(&self) -> Colour {
        match self {
            Self::Picture(picture) => picture.colour,
            Self::Jpeg(window) => window.rows.colour,
        }
    }

    /// Bytes of a row.
    pub fn stride(&self) -> usize {
        self.width() as usize * self.colour().channels()
    }

    /// Some rows, one after the other. None of them lies above those that were asked for before.
    ///
    /// # Errors
    /// INVALID_ARG if the file is damaged.
    pub fn rows(&mut self, range: Range<usize>) -> Result<&[u8]> {
        let stride = self.stride();
        match self {
            Self::Picture(picture) => Ok(&picture.pixels[range.start * stride..range.end * stride]),
            Self::Jpeg(window) => window.rows(range, stride),
        }
    }

    /// Reads what is left, so that a file which is damaged below the rows that were asked for is an error, too.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Picture(_) => Ok(()),
            Self::Jpeg(mut window) => {
                (window.past..window.rows.height as usize).try_for_each(|_| window.rows.next(None))
            }
        }
    }
}

/// Rows of a file that may be needed again.
pub struct JpegWindow<'a> {
    rows: JpegRows<'a>,
    bytes: Vec<u8>,
    /// First row that may be asked for.
    first: usize,
    /// Row after the last one that was decoded.
    past: usize,
    /// Rows at the start of the memory that are not needed any more.
    dropped: usize,
}

impl JpegWindow<'_> {
    fn rows(&mut self, range: Range<usize>, stride: usize) -> Result<&[u8]> {
        let Range { start, end } = range;
        self.dropped += start.min(self.past).saturating_sub(self.first);
        self.first = self.first.max(start);
        while self.past < start {
            self.rows.next(None)?;
            self.past += 1;
        }
        if self.past < end {
            let has = self.past - self.first;
            let needed = end - self.first;
            // Twice the rows, so that each of them is moved once at most.
            if (self.dropped + needed) * stride > self.bytes.len() {
                self.bytes.copy_within(self.dropped * stride..(self.dropped + has) * stride, 0);
                self.dropped = 0;
                if self.bytes.len() < needed * 2 * stride {
                    self.bytes.resize(needed * 2 * stride, 0);
                }
            }
            while self.past < end {
                let at = (self.dropped + self.past - self.first) * stride;
                self.rows.next(Some(&mut self.bytes[at..][..stride]))?;
                self.past += 1;
            }
        }
        Ok(&self.bytes[(self.dropped + start - self.first) * stride..][..(end - start) * stride])
    }
}
