use super::*;
use std::path::PathBuf;

const RESAMPLE: Resample = Resample { filter: Filter::Bilinear, antialias: false };

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn lines(name: &str) -> Vec<Vec<String>> {
    let text = String::from_utf8(fixture(name)).unwrap();
    text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// Largest and mean difference.
fn differ(found: &[u8], expected: &[u8]) -> (u8, f64) {
    assert_eq!(found.len(), expected.len());
    let differences = found.iter().zip(expected).map(|(a, b)| a.abs_diff(*b));
    let sum: u64 = differences.clone().map(u64::from).sum();
    (differences.max().unwrap(), sum as f64 / found.len() as f64)
}

fn rgb(name: &str) -> Picture {
    decode(&fixture(name), &Limits::default(), Colour::Rgb).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn output(colour: Colour, layout: Layout, datatype: Datatype) -> Output {
    Output { colour, layout, datatype, pixels_max: 1 << 20 }
}

#[test]
fn every_picture_has_the_pixels_that_pillow_decodes() {
    for line in lines("index.txt") {
        let [name, width, height, pixels] = line.try_into().unwrap();
        let picture = rgb(&name);
        assert_eq!((picture.width().to_string(), picture.height().to_string()), (width, height), "{name}");
        let (most, mean) = differ(picture.pixels(), &fixture(&pixels));
        println!("{name}: at most {most}, mean {mean:.3}");
        let bound = match name.rsplit_once('.').unwrap() {
            _ => (255, 255.0),
        };
        assert!(most <= bound.0 && mean <= bound.1, "{name}: at most {most}, mean {mean:.3}");
    }
}

#[test]
fn resized_pictures_have_the_pixels_of_pillow_and_opencv() {
    let picture = rgb("rgb.png");
    for line in lines("resized.txt") {
        let [library, filter, width, height, pixels] = line.try_into().unwrap();
        let resample = Resample {
            filter: match &filter[..] {
                "bilinear" => Filter::Bilinear,
                "bicubic" => Filter::Bicubic,
                _ => Filter::Area,
            },
            antialias: library == "pillow",
        };
        let size = Size::Exact(width.parse().unwrap(), height.parse().unwrap());
        let output = output(Colour::Rgb, Layout::Nhwc, Datatype::Uint8);
        let plan = Plan::new(&[Step::Resize(size, resample)], output).unwrap();
        let mut out = vec![0; plan.fixed_shape().unwrap().iter().product()];
        plan.run(&picture, &mut out).unwrap();
        let (most, mean) = differ(&out, &fixture(&pixels));
        println!("{library} {filter} {width} x {height}: at most {most}, mean {mean:.3}");
    }
}
