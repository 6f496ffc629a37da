//! Weights of source pixels per resized pixel, for one axis.

use std::f64::consts::PI;

/// Weights of the source pixels of which a resized one is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    /// Linear between two pixels.
    Bilinear,
    /// Keys' cubic between four pixels: slope -0.5 with `antialias`, as in Pillow, and -0.75 without, as in OpenCV.
    Bicubic,
    /// Lanczos' windowed sinc: over three pixels on each side with `antialias`, as in Pillow, and over four without, as
    /// OpenCV's `INTER_LANCZOS4`.
    Lanczos,
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
    /// transformers. Without, as in OpenCV (`INTER_LINEAR`, `INTER_CUBIC`, `INTER_LANCZOS4`, `INTER_AREA`) and
    /// ultralytics.
    pub antialias: bool,
}

/// A weight of one: 14 bits, so that a weight fits 16 bits and a product with 16 bits fits 32.
pub const ONE: i32 = 1 << 14;

/// How to resize one axis. Each resized pixel has consecutive source pixels, whose weights sum up to [`ONE`] exactly:
/// a picture of one colour stays as it is.
pub struct Taps {
    spans: Vec<TapSpan>,
    weights: Vec<i16>,
}

#[derive(Clone, Copy)]
struct TapSpan {
    /// First source pixel.
    first: u32,
    /// Index of its weight.
    at: u32,
    count: u32,
}

impl Taps {
    /// Weights for the pixels `wanted` of `to` pixels that are made of `from` ones.
    pub fn new(axis: Axis, from: u32, to: u32, wanted: std::ops::Range<u32>) -> Self {
        let scale = f64::from(from) / f64::from(to);
        let mut taps = Self { spans: Vec::with_capacity(wanted.len()), weights: Vec::new() };
        let mut exact = Vec::new();
        for index in wanted {
            exact.clear();
            let first = axis.weigh(f64::from(index), scale, from, &mut exact);
            taps.push(first, &exact);
        }
        taps
    }

    /// Adds a resized pixel. The sum is rounded, not each weight: thousands of small weights would all lose the same.
    fn push(&mut self, first: u32, exact: &[f64]) {
        let total: f64 = exact.iter().sum();
        let mut sum = 0.0;
        let mut before = 0;
        let at = self.weights.len() as u32;
        for &weight in exact {
            sum += weight;
            let rounded = (sum / total * f64::from(ONE)).round() as i32;
            self.weights.push((rounded - before) as i16);
            before = rounded;
        }
        self.spans.push(TapSpan { first, at, count: exact.len() as u32 });
    }

    /// Number of resized pixels.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// First source pixel of a resized one, and the weights from there on.
    pub fn get(&self, index: usize) -> (usize, &[i16]) {
        let span = self.spans[index];
        (span.first as usize, &self.weights[span.at as usize..][..span.count as usize])
    }

    /// Source pixels that any resized one needs.
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = self.spans.iter().map(|span| span.first).min().unwrap_or(0);
        let end = self.spans.iter().map(|span| span.first + span.count).max().unwrap_or(0);
        start as usize..end as usize
    }

    /// The same axis with source pixels counted from `start`.
    pub fn counted_from(mut self, start: usize) -> Self {
        self.spans.iter_mut().for_each(|span| span.first -= start as u32);
        self
    }
}

/// Form of the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Axis {
    /// A filter whose support grows with the scale, as in Pillow.
    Antialias(Filter),
    /// Two, four or eight neighbours whatever the scale, as OpenCV's `INTER_LINEAR`, `INTER_CUBIC` and
    /// `INTER_LANCZOS4`.
    Neighbours(Filter),
    /// Parts of pixels by their area, as OpenCV's `INTER_AREA` when it shrinks.
    Cover,
    /// Two neighbours in steps, as OpenCV's `INTER_AREA` when it enlarges.
    Steps,
}

impl Axis {
    /// Form for both axes of a picture.
    pub fn of(resample: Resample, from: (u32, u32), to: (u32, u32)) -> Self {
        match resample {
            Resample { filter, antialias: true } => Self::Antialias(filter),
            Resample { filter: Filter::Area, .. } if from.0 >= to.0 && from.1 >= to.1 => Self::Cover,
            Resample { filter: Filter::Area, .. } => Self::Steps,
            Resample { filter, .. } => Self::Neighbours(filter),
        }
    }

    /// Weights of one resized pixel; returns the first source pixel. At least one, and their sum is not zero.
    fn weigh(self, index: f64, scale: f64, from: u32, weights: &mut Vec<f64>) -> u32 {
        let last = from - 1;
        match self {
            Self::Antialias(filter) => {
                let stretch = scale.max(1.0);
                let (kernel, support): (fn(f64) -> f64, f64) = match filter {
                    Filter::Bilinear => (triangle, 1.0),
                    Filter::Bicubic => (|x| cubic(x, -0.5), 2.0),
                    Filter::Lanczos => (|x| lanczos(x, 3.0), 3.0),
                    Filter::Area => (square, 0.5),
                };
                let centre = (index + 0.5) * scale;
                // A cast ends at zero.
                let first = ((centre - support * stretch + 0.5) as u32).min(last);
                let end = ((centre + support * stretch + 0.5) as u32).clamp(first + 1, from);
                weights.extend((first..end).map(|x| kernel((f64::from(x) - centre + 0.5) / stretch)));
                if weights.iter().sum::<f64>() == 0.0 {
                    weights.fill(1.0);
                }
                first
            }
            Self::Neighbours(filter) => {
                let at = (index + 0.5) * scale - 0.5;
                let offset = at - at.floor();
                let at = at.floor() as i64;
                let neighbours: &[(i64, f64)] = match filter {
                    Filter::Bilinear | Filter::Area => &[(0, 1.0 - offset), (1, offset)],
                    Filter::Bicubic => &[-1, 0, 1, 2].map(|k| (k, cubic(k as f64 - offset, -0.75))),
                    Filter::Lanczos => &[-3, -2, -1, 0, 1, 2, 3, 4].map(|k| (k, lanczos(k as f64 - offset, 4.0))),
                };
                clamp(at, neighbours, last, weights)
            }
            Self::Cover => {
                let (start, end) = (index * scale, ((index + 1.0) * scale).min(from.into()));
                let first = (start as u32).min(last);
                let past = (end.ceil() as u32).clamp(first + 1, from);
                // A remainder of floating point is no part of a pixel.
                let part = |x: f64| (end.min(x + 1.0) - start.max(x)).max(0.0);
                weights.extend((first..past).map(|x| part(x.into())).map(|part| if part < 1e-3 { 0.0 } else { part }));
                if weights.iter().sum::<f64>() == 0.0 {
                    weights.fill(1.0);
                }
                first
            }
            Self::Steps => {
                let at = (index * scale).floor();
                let offset = ((index + 1.0) - (at + 1.0) / scale).max(0.0);
                let offset = offset - offset.floor();
                clamp(at as i64, &[(0, 1.0 - offset), (1, offset)], last, weights)
            }
        }
    }
}

/// Weights of neighbours, where those outside of the picture have the place of the pixel at its edge.
fn clamp(at: i64, neighbours: &[(i64, f64)], last: u32, weights: &mut Vec<f64>) -> u32 {
    let place = |offset: i64| (at + offset).clamp(0, last.into()) as u32;
    let first = place(neighbours[0].0);
    for &(offset, weight) in neighbours {
        let index = (place(offset) - first) as usize;
        if index == weights.len() {
            weights.push(0.0);
        }
        weights[index] += weight;
    }
    first
}

fn square(x: f64) -> f64 {
    if x > -0.5 && x <= 0.5 { 1.0 } else { 0.0 }
}

fn triangle(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

/// Keys' cubic; `a` is the slope at one.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    match x {
        0.0..1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        1.0..2.0 => ((x - 5.0) * x + 8.0) * x * a - 4.0 * a,
        _ => 0.0,
    }
}

/// Lanczos' kernel; `a` is its support.
fn lanczos(x: f64, a: f64) -> f64 {
    let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
    if x.abs() < a { sinc(x) * sinc(x / a) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_lie_within_the_source_and_sum_up_to_one() {
        let filters = [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos, Filter::Area];
        let axes = filters.iter().flat_map(|&filter| [Axis::Antialias(filter), Axis::Neighbours(filter)]);
        let axes: Vec<_> = axes.chain([Axis::Cover, Axis::Steps]).collect();
        for from in (1..24).chain([997, 16384]) {
            for to in (1..24).chain([1000]) {
                for &axis in &axes {
                    let taps = Taps::new(axis, from, to, 0..to);
                    for i in 0..taps.len() {
                        let (first, weights) = taps.get(i);
                        let case = format!("{axis:?} {from} to {to} at {i}: {first} {weights:?}");
                        assert!(!weights.is_empty() && first + weights.len() <= from as usize, "{case}");
                        assert_eq!(weights.iter().map(|&weight| i32::from(weight)).sum::<i32>(), ONE, "{case}");
                        let size: i32 = weights.iter().map(|&weight| i32::from(weight).abs()).sum();
                        assert!(size <= ONE * 7 / 4, "{case}");
                    }
                }
            }
        }
    }
}
