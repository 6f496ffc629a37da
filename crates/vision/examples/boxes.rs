//! CPU time of reading the boxes of a YOLOv8 network for 640 × 640 pixels: `[84, 8400]` values, per call in µs.
//!
//! `cargo run --release -p nereid-vision --example boxes [file.f32 …]`: without files, a usual picture (50 boxes over
//! the threshold) and a dense one (2,000); a file has the values in little endian.

use std::hint::black_box;
use std::time::Instant;
use vision::Placement;
use vision::boxes::{Decoder, Layout, RowOutput, Settings};

const BOXES: usize = 8400;
const ROWS: usize = 84;
const CALLS: usize = 200;

/// Scores below the threshold everywhere, and above it for one class of `over` boxes.
fn values(over: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut share = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    let mut data = vec![0.0; ROWS * BOXES];
    for i in 0..BOXES {
        let place = [share() * 640.0, share() * 640.0, 10.0 + share() * 90.0, 10.0 + share() * 90.0];
        (0..4).for_each(|row| data[row * BOXES + i] = place[row]);
        (4..ROWS).for_each(|row| data[row * BOXES + i] = share() * 0.2);
    }
    for i in 0..over {
        let (at, row) = (i * BOXES / over, 4 + (share() * 80.0) as usize);
        data[row * BOXES + at] = 0.3 + share() * 0.69;
    }
    data
}

fn measure(name: &str, data: &[f32]) {
    let decoder = Decoder { layout: Layout::Yolov8, classes: Some(80), is_multi_label: false, input: None };
    let placement =
        Placement { scale_x: 0.5, scale_y: 0.5, offset_x: 0.0, offset_y: 80.0, width: 1280.0, height: 960.0 };
    let outputs = [RowOutput { name: "output0", shape: &[ROWS as i64, BOXES as i64], data }];
    for boxes_max in [300, 3000] {
        let settings = Settings { boxes_max, ..Layout::Yolov8.settings() };
        let mut count = 0;
        let mut times: Vec<f64> = (0..CALLS)
            .map(|_| {
                let begin = Instant::now();
                let boxes = decoder.decode(black_box(&outputs), &placement, &settings).expect("boxes");
                count = black_box(&boxes).boxes.len();
                begin.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let (least, median) = (times[0], times[CALLS / 2]);
        println!("{name}, boxes_max {boxes_max}: {count} boxes, least {least:.0} µs, median {median:.0} µs");
    }
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        [50, 2000].into_iter().for_each(|over| measure(&format!("{over} over the threshold"), &values(over)));
    }
    for file in files {
        let bytes = std::fs::read(&file).expect("a file");
        let data: Vec<f32> = bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        measure(&file, &data);
    }
}
