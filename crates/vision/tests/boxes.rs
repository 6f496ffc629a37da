//! Boxes equal those of torchvision and transformers, whatever the outputs are.

mod support;

use support::Numbers;
use vision::Placement;
use vision::boxes::{
    BOXES_MAX, Boxes, CANDIDATES_MAX, Decoder, Layout, Overrides, RowOutput, Settings, Suppression, fuzz,
};

const WIDE: Placement = Placement { scale_x: 1.0, scale_y: 1.0, offset_x: 0.0, offset_y: 0.0, width: 1e6, height: 1e6 };

fn decoder(layout: Layout) -> Decoder {
    Decoder { layout, classes: None, is_multi_label: false, input: None }
}

/// Decodes outputs with these shapes and values.
fn decode(decoder: Decoder, outputs: &[(&[i64], &[f32])], placement: &Placement, settings: &Settings) -> Boxes {
    try_decode(decoder, outputs, placement, settings).expect("boxes")
}

fn try_decode(
    decoder: Decoder,
    outputs: &[(&[i64], &[f32])],
    placement: &Placement,
    settings: &Settings,
) -> Result<Boxes, String> {
    let names = ["first", "second", "third"];
    let outputs: Vec<_> =
        outputs.iter().zip(names).map(|(&(shape, data), name)| RowOutput { name, shape, data }).collect();
    decoder.decode(&outputs, placement, settings).map_err(|e| e.message().to_owned())
}

/// Final boxes, so that only the suppression is tested.
fn suppress(boxes: &[[f32; 4]], scores: &[f32], labels: &[f32], settings: &Settings) -> Boxes {
    let count = boxes.len() as i64;
    let outputs: [(&[i64], &[f32]); 3] = [(&[count, 4], boxes.as_flattened()), (&[count], labels), (&[count], scores)];
    decode(decoder(Layout::Torchvision), &outputs, &WIDE, settings)
}

/// The boxes of `random_boxes` of the script.
fn random_boxes(seed: u32, count: u32, side: u32, unit: f32, classes: u32, levels: u32) -> Random {
    let mut numbers = Numbers(seed);
    let mut random = Random::default();
    for _ in 0..count {
        let (x, y) = (numbers.integer(side), numbers.integer(side));
        let (w, h) = (numbers.integer(side / 4 + 1), numbers.integer(side / 4 + 1));
        random.boxes.push([x, y, x + w, y + h].map(|value| value as f32 / unit));
        random.scores.push((f64::from(numbers.integer(levels) + 1) / f64::from(levels + 1)) as f32);
        random.labels.push(numbers.integer(classes) as f32);
    }
    random
}

#[derive(Default)]
struct Random {
    boxes: Vec<[f32; 4]>,
    scores: Vec<f32>,
    labels: Vec<f32>,
}

/// The definition, without regard to time: positions that stay.
fn by_definition(random: &Random, settings: &Settings) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..random.boxes.len()).filter(|&i| random.scores[i] > settings.score_threshold).collect();
    order.sort_by(|&a, &b| random.scores[b].total_cmp(&random.scores[a]));
    let mut stay: Vec<usize> = Vec::new();
    for i in order {
        let is_suppressed = stay.iter().any(|&j| {
            let (a, b) = (random.boxes[i], random.boxes[j]);
            let area = |[x1, y1, x2, y2]: [f32; 4]| (x2 - x1) * (y2 - y1);
            let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
            let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
            let iou = width * height / (area(b) + area(a) - width * height);
            let is_same = settings.suppression == Suppression::AllClasses || random.labels[i] == random.labels[j];
            is_same && f64::from(iou) > settings.iou_threshold
        });
        if !is_suppressed || settings.suppression == Suppression::None {
            stay.push(i);
        }
    }
    stay.truncate(settings.boxes_max as usize);
    stay
}

fn check(found: &Boxes, random: &Random, stay: &[usize], case: &str) {
    assert_eq!(found.boxes, stay.iter().map(|&i| random.boxes[i]).collect::<Vec<_>>(), "{case}");
    assert_eq!(found.scores, stay.iter().map(|&i| random.scores[i]).collect::<Vec<_>>(), "{case}");
    assert_eq!(found.classes, stay.iter().map(|&i| random.labels[i] as u32).collect::<Vec<_>>(), "{case}");
}

#[test]
fn suppression_equals_that_of_torchvision() {
    for line in include_str!("boxes/nms.txt").lines() {
        let (case, expected) = line.split_once(" : ").expect("a case");
        let numbers: Vec<f64> = case.split(' ').map(|n| n.parse().expect("a number")).collect();
        let [seed, count, side, unit, classes, levels, iou_threshold, per_class] = numbers[..] else {
            panic!("{line}")
        };
        let [seed, count, side, classes, levels] = [seed, count, side, classes, levels].map(|n| n as u32);
        let suppression = if per_class == 1.0 { Suppression::PerClass } else { Suppression::AllClasses };
        let settings = Settings { score_threshold: 0.0, iou_threshold, boxes_max: BOXES_MAX, suppression };
        let random = random_boxes(seed, count, side, unit as f32, classes, levels);
        // Positions from the definition, whose number and checksum are torchvision's.
        let all = Settings { boxes_max: u32::MAX, ..settings };
        let mut stay = by_definition(&random, &all);
        let checksum = stay.iter().fold(0x811C_9DC5_u32, |sum, &i| (sum ^ i as u32).wrapping_mul(0x0100_0193));
        let first = stay.iter().take(8).map(|i| format!(" {i}")).collect::<String>();
        assert_eq!(format!("{} {checksum}{first}", stay.len()), expected, "{case}");
        stay.truncate(BOXES_MAX as usize);
        check(&suppress(&random.boxes, &random.scores, &random.labels, &settings), &random, &stay, case);
    }
}

#[test]
fn suppression_equals_its_definition_on_random_boxes() {
    let mut numbers = Numbers(17);
    for case in 0..200 {
        let (count, side) = (numbers.integer(300), 2 + numbers.integer(60));
        let (classes, levels) = (1 + numbers.integer(600), 1 + numbers.integer(50));
        let random = random_boxes(case, count, side, 1.0, classes, levels);
        let settings = Settings {
            score_threshold: numbers.integer(80) as f32 / 100.0,
            iou_threshold: f64::from(numbers.integer(101)) / 100.0,
            boxes_max: 1 + numbers.integer(200),
            suppression: Suppression::ALL[numbers.integer(3) as usize],
        };
        let found = suppress(&random.boxes, &random.scores, &random.labels, &settings);
        check(&found, &random, &by_definition(&random, &settings), &format!("{case}: {settings:?}"));
    }
}

/// Shapes and values of a layout's outputs.
type Outputs = Vec<(Vec<i64>, Vec<f32>)>;

/// Outputs of a layout as the script makes them.
fn fixture(layout: Layout) -> (Outputs, Placement) {
    let places = |numbers: &mut Numbers| {
        [(0.0, 640.0), (0.0, 640.0), (8.0, 120.0), (8.0, 120.0)]
            .map(|(least, width)| numbers.spread(200, least, width))
            .concat()
    };
    let letterbox =
        Placement { scale_x: 0.5, scale_y: 0.5, offset_x: 0.0, offset_y: 80.0, width: 1280.0, height: 960.0 };
    match layout {
        Layout::Yolov5 => {
            let mut numbers = Numbers(50);
            let place = places(&mut numbers);
            let (objectness, classes) = (numbers.spread(200, 0.0, 1.0), numbers.scores(200 * 12));
            let rows = (0..200).flat_map(|i| {
                let head = [place[i], place[200 + i], place[400 + i], place[600 + i], objectness[i]];
                head.into_iter().chain(classes[12 * i..12 * i + 12].iter().copied()).collect::<Vec<_>>()
            });
            (vec![(vec![200, 17], rows.collect())], letterbox)
        }
        Layout::Yolov8 => {
            let mut numbers = Numbers(80);
            let place = places(&mut numbers);
            (vec![(vec![11, 200], [place, numbers.scores(7 * 200)].concat())], letterbox)
        }
        Layout::Detr | Layout::RtDetr => {
            let (seed, width) = if layout == Layout::Detr { (60, 11) } else { (70, 10) };
            let mut numbers = Numbers(seed);
            let logits = numbers.spread(40 * width, -7.0, 12.0);
            let boxes = numbers.spread(160, 0.0, 1.0);
            (vec![(vec![40, width as i64], logits), (vec![40, 4], boxes)], Placement::identity(640.0, 480.0))
        }
        Layout::RtDetrUltralytics => {
            let mut numbers = Numbers(75);
            let (boxes, scores) = (numbers.spread(160, 0.0, 1.0), numbers.spread(400, 0.0, 0.6));
            let rows = boxes.chunks(4).zip(scores.chunks(10)).flat_map(|(place, scores)| [place, scores].concat());
            (vec![(vec![40, 14], rows.collect())], Placement::identity(640.0, 480.0))
        }
        _ => {
            let mut numbers = Numbers(90);
            let maps = [(0.0, 1.0), (0.5, 2.0), (0.0, 1.0)];
            let maps = maps.map(|(least, width)| (vec![2, 10, 15], numbers.spread(2 * 10 * 15, least, width)));
            (maps.to_vec(), Placement::identity(60.0, 40.0))
        }
    }
}

#[test]
fn a_network_may_give_the_best_class_of_a_query_itself() {
    let layout = Layout::RtDetrUltralytics;
    let placement = Placement::identity(100.0, 50.0);
    let all = [0.5, 0.5, 0.2, 0.4, 0.1, 0.3, 0.9, 0.25, 0.5, 0.5, 1.0, 0.8, 0.2, 0.7];
    let best = [0.5, 0.5, 0.2, 0.4, 0.9, 2.0, 0.25, 0.5, 0.5, 1.0, 0.8, 0.0];
    let settings = layout.settings();
    let found = decode(decoder(layout), &[(&[2, 7], &all)], &placement, &settings);
    assert_eq!(found.boxes, [[40.0, 15.0, 60.0, 35.0], [0.0, 0.0, 50.0, 50.0]]);
    assert_eq!((&found.scores[..], &found.classes[..]), (&[0.9, 0.8][..], &[2, 0][..]));
    assert_eq!(decode(decoder(layout), &[(&[2, 6], &best)], &placement, &settings), found);
    // Six values may also be those of two classes, if there are as many.
    let two = Decoder { classes: Some(2), ..decoder(layout) };
    let found =
        decode(two, &[(&[2, 6], &[0.5, 0.5, 0.2, 0.4, 0.1, 0.9, 0.5, 0.5, 0.2, 0.4, 0.1, 0.2])], &placement, &settings);
    assert_eq!((&found.scores[..], &found.classes[..]), (&[0.9][..], &[1][..]));
    let error = try_decode(Decoder { classes: Some(5), ..two }, &[(&[2, 7], &all)], &placement, &settings).unwrap_err();
    assert!(error.contains("[queries, 4 + 5] or [queries, 6]"), "{error}");
}

#[test]
fn layouts_equal_their_frameworks() {
    let text = include_str!("boxes/layouts.txt");
    for block in
        text.split_inclusive('\n').collect::<Vec<_>>().chunk_by(|_, next| !next.starts_with(char::is_alphabetic))
    {
        let name = block[0].trim();
        let is_multi_label = name.ends_with(" multi_label");
        let layout = Layout::from_name(name.trim_end_matches(" multi_label")).expect("a layout");
        let (outputs, placement) = fixture(layout);
        let outputs: Vec<_> = outputs.iter().map(|(shape, data)| (&shape[..], &data[..])).collect();
        let found = decode(Decoder { is_multi_label, ..decoder(layout) }, &outputs, &placement, &layout.settings());
        assert_eq!(found.boxes.len(), block.len() - 1, "{name}");
        assert!(found.boxes.len() > 20, "{name}");
        for (i, line) in block[1..].iter().enumerate() {
            let expected: Vec<f32> = line.split_whitespace().map(|n| n.parse().expect("a number")).collect();
            let [x1, y1, x2, y2, score, class] = expected[..] else { panic!("{line}") };
            let differs = |a: f32, b: f32, by: f32| (a - b).abs() > by;
            let is_other = found.classes[i] != class as u32
                || differs(found.scores[i], score, 1e-6)
                || found.boxes[i].iter().zip([x1, y1, x2, y2]).any(|(a, b)| differs(*a, b, 1e-3));
            assert!(!is_other, "{name} {i}: {:?} {} {line}", found.boxes[i], found.scores[i]);
        }
    }
}

#[test]
fn boxes_of_an_end_to_end_network_lead_back_to_the_picture() {
    let placement =
        Placement { scale_x: 2.0, scale_y: 0.5, offset_x: 10.0, offset_y: 20.0, width: 100.0, height: 400.0 };
    let data = [
        [12.0, 30.0, 50.0, 70.0, 0.5, 3.0],
        [-900.0, -900.0, 900.0, 900.0, 0.75, 0.0],
        [12.0, 30.0, 50.0, 70.0, 0.25, 3.0], // not greater than the threshold
        [12.0, 30.0, 50.0, 70.0, 0.9, -1.0], // no class
        [50.0, 30.0, 12.0, 70.0, 0.9, 1.0],  // x2 < x1
    ];
    let output: [(&[i64], &[f32]); 1] = [(&[5, 6], data.as_flattened())];
    let layout = Layout::EndToEnd;
    let found = decode(decoder(layout), &output, &placement, &layout.settings());
    assert_eq!(found.boxes, [[0.0, 0.0, 100.0, 400.0], [1.0, 20.0, 20.0, 100.0]]);
    assert_eq!((found.scores, found.classes), (vec![0.75, 0.5], vec![0, 3]));
}

#[test]
fn of_equal_classes_of_a_box_the_first_counts() {
    // One box with five classes, more than the scan takes at once.
    let outputs: [(&[i64], &[f32]); 1] = [(&[9, 1], &[9.0, 9.0, 2.0, 2.0, 0.1, 0.6, 0.5, 0.6, 0.6])];
    let found = decode(decoder(Layout::Yolov8), &outputs, &WIDE, &Layout::Yolov8.settings());
    assert_eq!((found.classes, found.scores), (vec![1], vec![0.6]));
    let outputs: [(&[i64], &[f32]); 2] = [(&[1, 4], &[1.0, 3.0, 3.0, 0.5]), (&[1, 4], &[0.5; 4])];
    let settings = Settings { score_threshold: 0.1, ..Layout::Detr.settings() };
    assert_eq!(decode(decoder(Layout::Detr), &outputs, &WIDE, &settings).classes, [1]);
}

#[test]
fn relative_boxes_of_a_letterbox_are_relative_to_the_input() {
    // 200 × 100 pixels at half the size in 100 × 100, below 25 rows of border.
    let placement =
        Placement { scale_x: 0.5, scale_y: 0.5, offset_x: 0.0, offset_y: 25.0, width: 200.0, height: 100.0 };
    let outputs: [(&[i64], &[f32]); 2] = [(&[1, 1], &[4.0]), (&[1, 4], &[0.5, 0.5, 0.2, 0.2])];
    let layout = Layout::RtDetr;
    let inside = Decoder { input: Some([100.0, 100.0]), ..decoder(layout) };
    let found = decode(inside, &outputs, &placement, &layout.settings()).boxes[0];
    let expected = [80.0, 30.0, 120.0, 70.0];
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{found:?}");
    let found = decode(decoder(layout), &outputs, &placement, &layout.settings()).boxes[0];
    let expected = [80.0, 40.0, 120.0, 60.0];
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{found:?}");
}

#[test]
fn rows_with_values_that_are_not_finite_are_dropped() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for layout in
            [Layout::Yolov5, Layout::Yolov8, Layout::Detr, Layout::RtDetr, Layout::CenterNet, Layout::CenterFace]
        {
            let settings = Settings { suppression: Suppression::None, boxes_max: 1000, ..layout.settings() };
            let (clean, placement) = fixture(layout);
            let run = |outputs: &[(Vec<i64>, Vec<f32>)]| {
                let outputs: Vec<_> = outputs.iter().map(|(shape, data)| (&shape[..], &data[..])).collect();
                decode(decoder(layout), &outputs, &placement, &settings)
            };
            let all = run(&clean);
            for output in 0..clean.len() {
                let mut dirty = clean.clone();
                let values = &mut dirty[output].1;
                for i in (0..values.len()).step_by(97) {
                    values[i] = bad;
                }
                let found = run(&dirty);
                assert!(!found.boxes.is_empty() && found.boxes.as_flattened().iter().all(|value| value.is_finite()));
                assert!(found.scores.iter().all(|score| score.is_finite()));
                // Where a center was, its neighbour may be one; and a query that was too many takes the place of one.
                let is_map = matches!(layout, Layout::CenterNet | Layout::CenterFace) && output == 0;
                let is_less = found.boxes.len() < all.boxes.len();
                let is_other = (is_map || layout == Layout::RtDetr) && found != all;
                assert!(is_less || is_other, "{layout:?} {output} {bad}");
            }
        }
    }
}

#[test]
fn an_unexpected_shape_is_an_error_with_the_name_and_both_shapes() {
    let check = |layout: Layout, classes: Option<usize>, shapes: &[&[i64]], expected: &str| {
        let data = shapes.iter().map(|s| vec![0.0; s.iter().product::<i64>().max(0) as usize]).collect::<Vec<_>>();
        let outputs: Vec<_> = shapes.iter().zip(&data).map(|(shape, data)| (*shape, &data[..])).collect();
        let decoder = Decoder { classes, ..decoder(layout) };
        let found = try_decode(decoder, &outputs, &WIDE, &layout.settings()).map(|boxes| boxes.boxes.len());
        assert_eq!(found.err().unwrap_or_else(|| "fine".to_owned()), expected);
    };
    let (v5, v8) = (Layout::Yolov5, Layout::Yolov8);
    check(v5, None, &[&[100, 85]], "fine");
    check(v8, None, &[&[84, 100]], "fine");
    check(v8, Some(80), &[&[84, 21]], "fine");
    check(v8, Some(80), &[&[116, 100]], "fine"); // 32 coefficients of masks
    check(v8, None, &[&[84, 0]], "fine");
    check(v8, None, &[&[84]], "unexpected shape of output 'first': expected [4 + classes, boxes], got [84]");
    check(v8, Some(80), &[&[83, 9]], "unexpected shape of output 'first': expected [4 + 80, boxes], got [83,9]");
    check(v5, Some(0), &[&[9, 0]], "unexpected shape of output 'first': expected [boxes, 5 + classes], got [9,0]");
    let text = "unexpected shape of output 'first': expected [4 + classes, boxes] with fewer classes than boxes, got \
                [100,85]. If it is of layout 'yolov5', set that; else set the number of classes";
    check(v8, None, &[&[100, 85]], text);
    let text = "unexpected shape of output 'first': expected [boxes, 5 + classes] with fewer classes than boxes, got \
                [84,100]. If it is of layout 'yolov8', set that; else set the number of classes";
    check(v5, None, &[&[84, 100]], text);
    check(Layout::EndToEnd, None, &[&[300, 6]], "fine");
    let text = "unexpected shape of output 'first': expected [boxes, 6], got [6,300]";
    check(Layout::EndToEnd, None, &[&[6, 300]], text);
    let text = "layout 'detr' needs 2 outputs (logits [queries, classes + 1], boxes [queries, 4]), got 1";
    check(Layout::Detr, None, &[&[100, 92]], text);
    let text = "unexpected shape of output 'first': expected [queries, 80 + 1], got [100,92]";
    check(Layout::Detr, Some(80), &[&[100, 92], &[100, 4]], text);
    let text = "unexpected shape of output 'second': expected [300,4], as many as the queries of 'first', got [100,4]";
    check(Layout::RtDetr, Some(80), &[&[300, 80], &[100, 4]], text);
    check(
        Layout::RtDetr,
        Some(0),
        &[&[3, 0], &[3, 4]],
        "unexpected shape of output 'first': expected [queries, classes], got [3,0]",
    );
    let text = "unexpected shape of output 'third': expected [2,8,9], as 'first' has, got [2,9,8]";
    check(Layout::CenterNet, None, &[&[1, 8, 9], &[2, 8, 9], &[2, 9, 8]], text);
    let text = "unexpected shape of output 'second': expected [7], as many as boxes, got [8]";
    check(Layout::Torchvision, None, &[&[7, 4], &[8], &[7]], text);
    check(Layout::Torchvision, None, &[&[0, 4], &[0], &[0]], "fine");
    let outputs: [(&[i64], &[f32]); 1] = [(&[-1, 6], &[0.0; 6])];
    let e = try_decode(decoder(Layout::EndToEnd), &outputs, &WIDE, &Layout::EndToEnd.settings());
    assert_eq!(e.expect_err("an error"), "output 'first' has shape [-1,6] and 6 values");
}

#[test]
fn settings_of_a_request_are_checked() {
    let settings = Layout::Yolov8.settings();
    let check = |overrides: Overrides, expected: &str| {
        let found =
            settings.with(&overrides).map(|s| format!("{} {} {}", s.score_threshold, s.iou_threshold, s.boxes_max));
        assert_eq!(found.unwrap_or_else(|e| e.message().to_owned()), expected);
    };
    let none = Overrides::default();
    check(none, "0.25 0.7 300");
    check(Overrides { score_threshold: Some(0.5), boxes_max: Some(7), ..none }, "0.5 0.7 7");
    check(Overrides { score_threshold: Some(2.0), ..none }, "'score_threshold' must be a number from 0 to 1, got 2");
    check(Overrides { iou_threshold: Some(f64::NAN), ..none }, "'iou_threshold' must be a number from 0 to 1, got NaN");
    check(Overrides { boxes_max: Some(0), ..none }, "'boxes_max' must be a number from 1 to 3000, got 0");
    check(
        Overrides { boxes_max: Some(i64::MAX), ..none },
        &format!("'boxes_max' must be a number from 1 to 3000, got {}", i64::MAX),
    );
    for layout in Layout::ALL {
        layout.settings().check().expect("usual settings");
        assert_eq!(Layout::from_name(layout.name()), Some(layout));
    }
}

#[test]
fn more_candidates_than_the_limit_are_those_with_the_greatest_scores() {
    // Boxes that do not overlap, except that the one with the least score of those that count is suppressed by none.
    let count = CANDIDATES_MAX + 5000;
    let boxes: Vec<_> = (0..count).map(|i| [i as f32, 0.0, i as f32 + 1.0, 1.0]).collect();
    let scores: Vec<_> = (0..count).map(|i| (1 + i * 7919 % count) as f32 / (count + 1) as f32).collect();
    let settings =
        Settings { score_threshold: 0.0, iou_threshold: 0.5, boxes_max: 100, suppression: Suppression::AllClasses };
    let found = suppress(&boxes, &scores, &vec![0.0; count], &settings);
    let mut expected = scores;
    expected.sort_by(|a, b| b.total_cmp(a));
    assert_eq!(found.scores, expected[..100]);
    // All the same box: every candidate is compared and suppressed.
    let settings = Settings { iou_threshold: 0.0, ..settings };
    let found = suppress(&vec![[0.0, 0.0, 9.0, 9.0]; count], &expected, &vec![0.0; count], &settings);
    assert_eq!(found.scores, expected[..1]);
}

#[test]
fn arbitrary_outputs_give_boxes_within_the_picture() {
    let mut numbers = Numbers(99);
    let mut with_boxes = 0;
    for _ in 0..20_000 {
        let length = numbers.integer(600);
        let data: Vec<u8> = (0..length).map(|_| numbers.integer(256) as u8).collect();
        with_boxes += u32::from(fuzz::boxes(&data));
    }
    assert!(with_boxes > 1000, "{with_boxes} of 20000 had boxes");
}
