use super::*;
use crate::Placement;
use std::path::PathBuf;

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn lines<const N: usize>(name: &str) -> Vec<[String; N]> {
    let text = String::from_utf8(fixture(name)).unwrap();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    text.lines().map(words).collect()
}

/// Every picture of the fixtures, with its name.
fn pictures() -> Vec<(String, Vec<u8>)> {
    lines::<4>("index.txt").into_iter().map(|[name, ..]| (name.clone(), fixture(&name))).collect()
}

/// Largest and mean difference.
fn differ(found: &[u8], expected: &[u8]) -> (u8, f64) {
    assert_eq!(found.len(), expected.len());
    let differences = found.iter().zip(expected).map(|(a, b)| a.abs_diff(*b));
    let sum: u64 = differences.clone().map(u64::from).sum();
    (differences.max().unwrap(), sum as f64 / found.len() as f64)
}

fn read(name: &str, colour: Colour) -> Picture {
    decode(&fixture(name), &PictureLimits::default(), colour).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn check_refused(bytes: &[u8], limits: &PictureLimits, parts: &[&str]) {
    let error = decode(bytes, limits, Colour::Rgb).expect_err(parts[0]);
    assert_eq!(error.code(), tensor::Code::InvalidArg);
    for part in parts {
        assert!(error.message().contains(part), "{part:?} is not in {:?}", error.message());
    }
}

fn output(colour: Colour, layout: Layout, datatype: Datatype) -> Output {
    Output { colour, layout, datatype, pixels_max: 1 << 20 }
}

const UINT8: Output =
    Output { colour: Colour::Rgb, layout: Layout::Nhwc, datatype: Datatype::Uint8, pixels_max: 1 << 20 };
const OPENCV: Resample = Resample { filter: Filter::Bilinear, antialias: false };

fn run(plan: &PicturePlan, picture: &Picture) -> (Vec<u8>, Placement) {
    let shape = plan.output_shape(picture.width(), picture.height()).unwrap();
    let mut out = vec![0xa5; shape.iter().product::<usize>() * plan.output().datatype.byte_size()];
    let placement = plan.run(picture, &mut out).unwrap();
    (out, placement)
}

fn ramp(width: u32, height: u32) -> Picture {
    let pixels = (0..width * height * 3).map(|i| (i * 7 % 251) as u8).collect();
    Picture::new(width, height, Colour::Rgb, pixels).unwrap()
}

#[test]
fn every_picture_has_the_pixels_that_pillow_decodes() {
    for [name, width, height, pixels] in lines("index.txt") {
        let picture = read(&name, Colour::Rgb);
        assert_eq!((picture.width().to_string(), picture.height().to_string()), (width, height), "{name}");
        let (most, mean) = differ(picture.pixels(), &fixture(&pixels));
        // The inverse transforms round differently, by one level in a few of a thousand values.
        let (most_max, mean_max) = if name.ends_with(".jpg") { (2, 0.03) } else { (0, 0.0) };
        assert!(most <= most_max && mean <= mean_max, "{name}: at most {most}, mean {mean:.3}");
    }
}

#[test]
fn channels_are_those_asked_for() {
    for name in ["rgb.png", "444.jpg", "rgb.jpg", "cmyk.jpg", "ycck.jpg", "grey.jpg", "grey.png", "lossy.webp", "8.bmp"]
    {
        let rgb = read(name, Colour::Rgb);
        let pixels = rgb.pixels().as_chunks::<3>().0;
        let bgr: Vec<u8> = pixels.iter().flat_map(|&[r, g, b]| [b, g, r]).collect();
        assert!(read(name, Colour::Bgr).pixels() == bgr, "{name}");
        let luma =
            |&[r, g, b]: &[u8; 3]| (0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b)).round() as u8;
        let luma: Vec<u8> = pixels.iter().map(luma).collect();
        let (most, mean) = differ(read(name, Colour::Grey).pixels(), &luma);
        // The luma of a JPEG is that of the file; colours out of range were cut in RGB.
        let bound = if name == "444.jpg" { (38, 1.0) } else { (1, 0.1) };
        assert!(most <= bound.0 && mean < bound.1, "{name}: at most {most}, mean {mean:.3}");
    }
}

#[test]
fn a_truncated_picture_is_an_error() {
    let limits = PictureLimits::default();
    for (name, bytes) in pictures() {
        for length in (0..bytes.len()).step_by(16) {
            let result = decode(&bytes[..length], &limits, Colour::Rgb);
            // End chunks and further frames, which follow the pixels, are not read.
            let rest = match &name[..] {
                name if name.ends_with(".png") => 16,
                name if name.ends_with(".gif") => bytes.len() / 2,
                _ => 0,
            };
            assert!(result.is_err() || bytes.len() - length <= rest, "{name} of {length} bytes");
        }
    }
    let jpeg = fixture("420.jpg");
    check_refused(&jpeg[..jpeg.len() - 2], &limits, &["JPEG", "end within the picture: it is truncated"]);
    check_refused(&jpeg[..100], &limits, &["its 100 bytes end before the picture: it is truncated"]);
    check_refused(&fixture("24.bmp")[..500], &limits, &["BMP", "its 500 bytes end within the picture"]);
}

#[test]
fn damaged_pictures_do_not_panic() {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    for (_, bytes) in pictures() {
        for _ in 0..6 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + random() % 4 {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
            crate::fuzz::picture(&bytes);
        }
    }
}

#[test]
fn sizes_are_compared_with_the_limits_before_memory_is_taken() {
    let limits = PictureLimits::default();
    let huge = ["too large", "at most 16384 pixels per side are accepted (side_max)", "raise the limit"];
    check_refused(&fixture("huge.png"), &limits, &[&huge[..], &["PNG picture of 100000 x 100000 pixels"]].concat());
    let patched = |name: &str, find: &[u8], offset: usize, value: &[u8]| {
        let mut bytes = fixture(name);
        let at = bytes.windows(find.len()).position(|window| window == find).unwrap() + offset;
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let check = |bytes: &[u8], size: &str| check_refused(bytes, &limits, &[&huge[..], &[size]].concat());
    check(&patched("420.jpg", b"\xff\xc0", 5, &[0xff; 4]), "JPEG picture of 65535 x 65535");
    check(&patched("progressive.jpg", b"\xff\xc2", 5, &[0xff; 4]), "JPEG picture of 65535 x 65535");
    check(&patched("plain.gif", b"GIF8", 6, &[0xff; 4]), "GIF picture of 65535 x 65535");
    check(&patched("24.bmp", b"BM", 18, &i32::MAX.to_le_bytes()), "BMP picture of 2147483647 x 29");
    check(&patched("24.bmp", b"BM", 22, &i32::MIN.to_le_bytes()), "BMP picture of 37 x 2147483648");
    check(&patched("animated.webp", b"VP8X", 12, &[0x20, 0x4e]), "WebP picture of 20001 x 29");
    let small = PictureLimits { side_max: 4096, ..limits };
    let lossless = patched("lossless-alpha.webp", b"VP8L", 9, &[0xfe, 0xbf, 0xff, 0x1f]);
    check_refused(&lossless, &small, &["WebP picture of 16383 x 16383", "at most 4096"]);
    // A frame that is larger than its picture.
    let frame = patched("lossy-alpha.webp", b"VP8 ", 14, &[0xff, 0x3f, 0xff, 0x3f]);
    check_refused(&frame, &small, &["WebP picture of 16383 x 16383", "at most 4096"]);

    let few = PictureLimits { pixels_max: 1000, ..limits };
    check_refused(&fixture("rgb.png"), &few, &["37 x 29", "at most 1000 pixels are accepted (pixels_max)"]);
    let scans = PictureLimits { scans_max: 2, ..limits };
    check_refused(
        &fixture("progressive.jpg"),
        &scans,
        &["37 x 29", "too many scans: at most 2 are accepted (scans_max)"],
    );
    let scans = PictureLimits { scan_pixels_max: 37 * 29 * 4 - 1, ..limits };
    let text = "too many scans: at most 3 are accepted (scan_pixels_max); save it with fewer, or as baseline";
    check_refused(&fixture("progressive.jpg"), &scans, &["37 x 29", text]);
    // One scan is always possible.
    let few = PictureLimits { scan_pixels_max: 1, ..limits };
    assert!(decode(&fixture("420.jpg"), &few, Colour::Rgb).is_ok());
}

#[test]
fn what_is_not_read_is_named() {
    let limits = PictureLimits::default();
    check_refused(b"", &limits, &["picture is empty"]);
    let formats = "JPEG, PNG, WebP, GIF and BMP are read";
    check_refused(b"II*\0abc", &limits, &[formats, "begins with the bytes 49 49 2a 00 61 62 63"]);
    let mut rle = fixture("8.bmp");
    rle[30] = 1;
    check_refused(&rle, &limits, &["compression 1 with 8 bits is not read; save it without"]);
    let mut arithmetic = fixture("420.jpg");
    let frame = arithmetic.windows(2).position(|pair| pair == b"\xff\xc0").unwrap();
    arithmetic[frame + 1] = 0xc9;
    check_refused(&arithmetic, &limits, &["JPEG", "arithmetic coding are not read", "0xffc9"]);
}

#[test]
fn resized_pictures_have_the_pixels_of_pillow_and_opencv() {
    let picture = read("rgb.png", Colour::Rgb);
    for [library, filter, width, height, pixels] in lines("resized.txt") {
        let resample = Resample {
            filter: match &filter[..] {
                "bilinear" => Filter::Bilinear,
                "bicubic" => Filter::Bicubic,
                "lanczos" => Filter::Lanczos,
                _ => Filter::Area,
            },
            antialias: library == "pillow",
        };
        let size = Size::Exact(width.parse().unwrap(), height.parse().unwrap());
        let plan = PicturePlan::new(&[Step::Resize(size, resample)], UINT8).unwrap();
        let (out, _) = run(&plan, &picture);
        let (most, mean) = differ(&out, &fixture(&pixels));
        assert!(most <= 1 && mean <= 0.15, "{library} {filter} {width} x {height}: at most {most}, mean {mean:.3}");
    }
}

#[test]
fn one_colour_stays_as_it_is() {
    for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos, Filter::Area] {
        for (antialias, level) in [(true, 255), (false, 255), (true, 1), (false, 130)] {
            for (from, to) in [((3000, 7), (1, 1)), ((1, 1), (9, 5)), ((13, 17), (12, 40)), ((17, 400), (300, 3))] {
                let bytes = vec![level; from.0 as usize * from.1 as usize];
                let picture = Picture::new(from.0, from.1, Colour::Grey, bytes).unwrap();
                let resize = Step::Resize(Size::Exact(to.0, to.1), Resample { filter, antialias });
                let plan = PicturePlan::new(&[resize], output(Colour::Grey, Layout::Nchw, Datatype::Uint8)).unwrap();
                assert!(run(&plan, &picture).0.iter().all(|&out| out == level), "{filter:?} {antialias} {from:?}");
            }
        }
    }
}

#[test]
fn a_letterbox_has_the_borders_of_ultralytics() {
    let check_at =
        |align, from: (u32, u32), stride, enlarge, shape: [usize; 3], offset: (f32, f32), resized: (f32, f32)| {
            let (width, height) = (64, 64);
            let letterbox =
                Step::Letterbox { width, height, stride, enlarge, align, colour: [1, 2, 3], resample: OPENCV };
            let plan = PicturePlan::new(&[letterbox], UINT8).unwrap();
            assert_eq!(plan.fixed_shape().is_some(), stride.is_none());
            assert_eq!(plan.output_shape(from.0, from.1).unwrap(), shape, "{from:?}");
            let (out, placement) = run(&plan, &ramp(from.0, from.1));
            assert_eq!((placement.offset_x, placement.offset_y), offset, "{from:?}");
            let scale = (resized.0 / from.0 as f32, resized.1 / from.1 as f32);
            assert_eq!((placement.scale_x, placement.scale_y), scale, "{from:?}");
            assert_eq!((placement.width, placement.height), (from.0 as f32, from.1 as f32));
            // The picture lies inside of its borders.
            for (i, pixel) in out.as_chunks::<3>().0.iter().enumerate() {
                let (x, y) = ((i % shape[1]) as f32, (i / shape[1]) as f32);
                let is_inside = |at: f32, offset: f32, length: f32| at >= offset && at < offset + length;
                if !is_inside(x, offset.0, resized.0) || !is_inside(y, offset.1, resized.1) {
                    assert_eq!(pixel, &[1, 2, 3], "{from:?} at {x}, {y}");
                }
            }
        };
    let check = |from, stride, enlarge, shape, offset, resized| {
        check_at(Align::Center, from, stride, enlarge, shape, offset, resized)
    };
    // 64 * 48 / 100 is 30.72, and 33 rows are shared as 16 and 17.
    check((100, 48), None, true, [64, 64, 3], (0.0, 16.0), (64.0, 31.0));
    check((48, 100), None, true, [64, 64, 3], (16.0, 0.0), (31.0, 64.0));
    // One of 33 rows remains over a multiple of 8: round(0.5 - 0.1) is none on top.
    check((100, 48), Some(8), true, [32, 64, 3], (0.0, 0.0), (64.0, 31.0));
    check((100, 40), Some(16), true, [32, 64, 3], (0.0, 3.0), (64.0, 26.0));
    check((10, 10), None, true, [64, 64, 3], (0.0, 0.0), (64.0, 64.0));
    check((10, 5), None, false, [64, 64, 3], (27.0, 29.0), (10.0, 5.0));
    // Half a row: ties go to even.
    check((128, 65), None, true, [64, 64, 3], (0.0, 16.0), (64.0, 32.0));
    // All borders at the end (`center=False`).
    let check =
        |from, stride, shape, resized| check_at(Align::UpperLeft, from, stride, true, shape, (0.0, 0.0), resized);
    check((100, 48), None, [64, 64, 3], (64.0, 31.0));
    check((48, 100), None, [64, 64, 3], (31.0, 64.0));
    check((100, 40), Some(16), [32, 64, 3], (64.0, 26.0));
}

#[test]
fn sides_are_rounded_as_by_torchvision() {
    let shape = |steps: &[Step], width, height| {
        let plan = PicturePlan::new(steps, UINT8).unwrap();
        plan.output_shape(width, height).map(|[height, width, _]| (width, height))
    };
    let shortest = Step::Resize(Size::Shortest(256), OPENCV);
    assert_eq!(shape(std::slice::from_ref(&shortest), 500, 375).unwrap(), (341, 256));
    assert_eq!(shape(std::slice::from_ref(&shortest), 375, 501).unwrap(), (256, 342));
    assert_eq!(shape(&[shortest, Step::CenterCrop(224, 224)], 375, 501).unwrap(), (224, 224));
    assert_eq!(shape(&[Step::Resize(Size::Within(100, 50), OPENCV)], 333, 100).unwrap(), (100, 30));
    assert_eq!(shape(&[Step::Resize(Size::Within(100, 50), OPENCV)], 100_000, 3).unwrap(), (100, 1));
    let error = shape(&[Step::CenterCrop(10, 10)], 9, 20).unwrap_err();
    assert_eq!(error.message(), "picture: 10 x 10 pixels cannot be cut out of 9 x 20: resize before, or pad");
    let error = shape(&[Step::Resize(Size::Shortest(1000), OPENCV)], 1, 2000).unwrap_err();
    assert!(error.message().contains("at most 1048576 are allowed (pixels_max)"), "{error}");
    let error = shape(&[Step::Resize(Size::Shortest(10_000), OPENCV)], 1, 10_000).unwrap_err();
    assert!(error.message().contains("would be resized to 10000 x 100000000"), "{error}");
}

#[test]
fn steps_in_a_row_are_what_each_of_them_does() {
    let picture = ramp(41, 30);
    // A crop before a resize is a smaller picture.
    let resize = Step::Resize(Size::Exact(15, 50), Resample { filter: Filter::Bicubic, antialias: true });
    let (cropped, placement) = run(&PicturePlan::new(&[Step::CenterCrop(21, 20)], UINT8).unwrap(), &picture);
    assert_eq!((placement.offset_x, placement.offset_y, placement.scale_x), (-10.0, -5.0, 1.0));
    assert_eq!(cropped[..3], picture.pixels()[(5 * 41 + 10) * 3..][..3]);
    let cropped = Picture::new(21, 20, Colour::Rgb, cropped).unwrap();
    let (first, _) = run(&PicturePlan::new(std::slice::from_ref(&resize), UINT8).unwrap(), &cropped);
    let (both, placement) =
        run(&PicturePlan::new(&[Step::CenterCrop(21, 20), resize.clone()], UINT8).unwrap(), &picture);
    assert!(first == both);
    assert_eq!((placement.scale_x, placement.scale_y), (15.0 / 21.0, 2.5));
    assert_eq!((placement.offset_x, placement.offset_y), (-10.0 * 15.0 / 21.0, -12.5));
    // A crop after it takes a part of the resized one, and a pad puts it elsewhere.
    let (whole, _) = run(&PicturePlan::new(std::slice::from_ref(&resize), UINT8).unwrap(), &picture);
    let pad = Step::Pad { left: 2, top: 1, right: 3, bottom: 4, colour: [9, 8, 7] };
    let (part, placement) = run(&PicturePlan::new(&[resize, Step::CenterCrop(11, 20), pad], UINT8).unwrap(), &picture);
    assert_eq!((placement.offset_x, placement.offset_y), (0.0, -14.0));
    assert_eq!(part.len(), 16 * 25 * 3);
    for (y, row) in part.chunks_exact(16 * 3).enumerate() {
        for (x, pixel) in row.chunks_exact(3).enumerate() {
            let is_shown = (2..13).contains(&x) && (1..21).contains(&y);
            let expected = if is_shown { &whole[((y + 14) * 15 + x) * 3..][..3] } else { &[9, 8, 7] };
            assert_eq!(pixel, expected, "{x}, {y}");
        }
    }
}

#[test]
fn a_tensor_may_show_nothing_of_the_picture() {
    let pad = Step::Pad { left: 100, top: 0, right: 0, bottom: 0, colour: [9, 8, 7] };
    let cubic = Resample { filter: Filter::Bicubic, antialias: true };
    for before in [vec![], vec![OPENCV], vec![cubic]] {
        let resize = before.into_iter().map(|resample| Step::Resize(Size::Exact(10, 10), resample));
        let steps: Vec<_> = resize.chain([pad.clone(), Step::CenterCrop(10, 10)]).collect();
        let (out, placement) = run(&PicturePlan::new(&steps, UINT8).unwrap(), &ramp(10, 12));
        assert!(out == [9, 8, 7].repeat(100));
        assert_eq!(placement.offset_x, 50.0);
    }
}

#[test]
fn a_panic_of_a_decoder_is_an_error() {
    let error = guard(PictureFormat::Png, || -> Result<()> { panic!("at {}", 7) }).unwrap_err();
    assert_eq!(error.message(), "the code that decodes Png pictures panicked: at 7");
    assert_eq!(error.code(), tensor::Code::Internal);
}

#[test]
fn values_layouts_and_datatypes_are_those_of_the_output() {
    let picture = ramp(5, 4);
    let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let scale = 1.0 / 255.0;
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for datatype in [Datatype::Fp32, Datatype::Fp16] {
            let plan = PicturePlan::new(&[Step::Normalize { scale, mean, std }], output(Colour::Rgb, layout, datatype))
                .unwrap();
            let (out, _) = run(&plan, &picture);
            let elements = out.chunks_exact(datatype.byte_size());
            assert_eq!(elements.len(), 60);
            for (i, element) in elements.enumerate() {
                let (channel, pixel) = if layout == Layout::Nchw { (i / 20, i % 20) } else { (i % 3, i / 3) };
                let value = f32::from(picture.pixels()[pixel * 3 + channel]);
                let exact = (value * scale - mean[channel]) / std[channel];
                if let Ok(bytes) = element.try_into() {
                    assert_eq!(f32::from_le_bytes(bytes), exact);
                } else {
                    let found = tensor::f32_of_half(u16::from_le_bytes(element.try_into().unwrap()));
                    assert!((found - exact).abs() <= exact.abs() / 2048.0, "{found} is not {exact}");
                }
            }
        }
    }
    let (out, _) = run(&PicturePlan::new(&[], UINT8).unwrap(), &picture);
    assert!(out == picture.pixels());
}

#[test]
fn a_plan_that_cannot_run_is_refused_with_the_number_of_its_step() {
    let check = |steps: &[Step], text: &str| {
        let error = PicturePlan::new(steps, UINT8).expect_err(text);
        assert!(error.message().contains(text), "{text:?} is not in {:?}", error.message());
    };
    let resize = Step::Resize(Size::Exact(8, 8), OPENCV);
    let pad = Step::Pad { left: 1, top: 0, right: 0, bottom: 0, colour: [0; 3] };
    let normalize = Step::Normalize { scale: 1.0, mean: [0.0; 3], std: [1.0; 3] };
    check(&[resize.clone(), resize.clone()], "step 2: the picture is resized already");
    check(&[pad.clone(), resize.clone()], "step 2: borders cannot be resized");
    check(&[pad.clone(), pad], "step 2: the picture has borders already");
    check(std::slice::from_ref(&normalize), "step 1: UINT8 cannot be normalised: choose FP32 or FP16");
    check(&[resize.clone(), Step::CenterCrop(9, 8)], "step 2: 9 x 8 pixels cannot be cut out of 8 x 8");
    check(&[Step::CenterCrop(0, 8)], "step 1: size 0 x 8: a side has 1 to 16777216 pixels");
    check(&[Step::Resize(Size::Exact(2000, 2000), OPENCV)], "2000 x 2000 pixels is too large: at most 1048576");
    let letterbox = |stride| Step::Letterbox {
        width: 64,
        height: 32,
        stride: Some(stride),
        enlarge: true,
        align: Align::Center,
        colour: [0; 3],
        resample: OPENCV,
    };
    check(&[letterbox(0)], "step 1: a stride is 1 to 32, the shorter side");
    let fp32 = output(Colour::Rgb, Layout::Nchw, Datatype::Fp32);
    let zero = Step::Normalize { scale: 1.0, mean: [0.0; 3], std: [1.0, 0.0, 1.0] };
    assert!(PicturePlan::new(&[zero], fp32).unwrap_err().message().contains("must be finite and not zero"));
    let error = PicturePlan::new(&[normalize, resize], fp32).unwrap_err();
    assert_eq!(error.message(), "step 2: normalisation must be the last step");
    // A run compares its arguments as well.
    let plan = PicturePlan::new(&[], fp32).unwrap();
    let error = plan.run(&ramp(2, 2), &mut [0; 47]).unwrap_err();
    assert_eq!(error.message(), "tensor of the picture has 48 bytes, not 47");
    let grey = Picture::new(1, 1, Colour::Grey, vec![0]).unwrap();
    assert_eq!(plan.run(&grey, &mut [0; 4]).unwrap_err().message(), "picture is in Grey, and the plan expects Rgb");
}

#[test]
fn plans_write_all_of_the_tensor() {
    let bytes = fixture("rgb.png");
    for seed in 0..600u32 {
        let choice = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        crate::fuzz::picture(&[&bytes[..], &choice].concat());
    }
}
