//! Decodes a picture and writes it as a letterbox of 640 x 640 in FP32 NCHW, once per line of the standard input, and
//! prints the CPU time of each run in ns: of decoding alone, and of all. `letterbox.py` compares with Pillow and
//! OpenCV.
//!
//!     cargo run --release -p nereid-vision --example letterbox -- FILE bilinear|bicubic|area pillow|opencv

use std::io::BufRead;
use vision::picture::{
    Align, Colour, Datatype, Filter, Layout, Output, PictureLimits, PicturePlan, Resample, Step, decode,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, filter, library] = &arguments[..] else { panic!("FILE FILTER LIBRARY") };
    let filter = match &filter[..] {
        "bilinear" => Filter::Bilinear,
        "bicubic" => Filter::Bicubic,
        "area" => Filter::Area,
        _ => panic!("bilinear, bicubic or area"),
    };
    let resample = Resample { filter, antialias: library == "pillow" };
    let bytes = std::fs::read(file).expect("the picture");
    let letterbox = Step::Letterbox {
        width: 640,
        height: 640,
        stride: None,
        enlarge: true,
        align: Align::Center,
        colour: [114; 3],
        resample,
    };
    let normalize = Step::Normalize { scale: 1.0 / 255.0, mean: [0.0; 3], std: [1.0; 3] };
    let output = Output { colour: Colour::Rgb, layout: Layout::Nchw, datatype: Datatype::Fp32, pixels_max: 1 << 20 };
    let plan = PicturePlan::new(&[letterbox, normalize], output).expect("a plan");
    for _ in std::io::stdin().lock().lines() {
        let start = cpu_ns();
        std::hint::black_box(decode(&bytes, &PictureLimits::default(), Colour::Rgb).expect("a picture"));
        let decoded = cpu_ns();
        let mut out = vec![0; 3 * 640 * 640 * 4];
        plan.run_file(&bytes, &PictureLimits::default(), &mut out).expect("a tensor");
        std::hint::black_box(&out);
        println!("{} {}", decoded - start, cpu_ns() - decoded);
    }
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number of ns")
}
