//! Classes and their names.

mod support;

use support::Numbers;
use vision::labels::{Activation, NAME_BYTES_MAX, NAMES_BYTES_MAX, NAMES_MAX, Names, Top, top};

#[test]
fn scores_equal_those_of_pytorch() {
    for line in include_str!("boxes/labels.txt").lines() {
        let mut parts = line.split(' ');
        let name = parts.next().expect("an activation");
        let activation = Activation::ALL.into_iter().find(|a| a.name() == name).expect("an activation");
        let found = top(&Numbers(40).spread(1000, -8.0, 16.0), activation, 7);
        for (i, part) in parts.enumerate() {
            let (class, score) = part.split_once(':').expect("a class and its score");
            let score: f32 = score.parse().expect("a score");
            assert_eq!(found.classes[i].to_string(), class, "{name}");
            assert!((found.scores[i] - score).abs() <= 2e-6 * score.abs(), "{name} {} {score}", found.scores[i]);
        }
        assert_eq!(found.classes.len(), 7);
    }
}

#[test]
fn equal_scores_are_in_the_order_of_classes_and_nan_is_last() {
    let check = |row: &[f32], activation, count, expected: &[(u32, f32)]| {
        let Top { classes, scores } = top(row, activation, count);
        let found: Vec<_> = classes.into_iter().zip(scores).collect();
        // NaN is not equal to itself.
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    };
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    check(&[1.0, 2.0, 2.0, 1.0], Activation::None, 3, &[(1, 2.0), (2, 2.0), (0, 1.0)]);
    check(&[nan, -1.0, -nan, 0.0, -0.0], Activation::None, 9, &[(3, 0.0), (4, -0.0), (1, -1.0), (0, nan), (2, -nan)]);
    check(&[3.0, nan, 3.0], Activation::Softmax, 3, &[(0, 0.5), (2, 0.5), (1, nan)]);
    check(&[0.0, infinity, infinity, -infinity], Activation::Softmax, 3, &[(1, 0.5), (2, 0.5), (0, 0.0)]);
    check(&[-infinity, -infinity], Activation::Softmax, 1, &[(0, 0.5)]);
    check(&[-infinity, 0.0, infinity, nan], Activation::Sigmoid, 4, &[(2, 1.0), (1, 0.5), (0, 0.0), (3, nan)]);
    check(&[1e30, -1e30], Activation::Softmax, 2, &[(0, 1.0), (1, 0.0)]);
    check(&[1.0], Activation::None, 0, &[]);
    check(&[], Activation::Softmax, 5, &[]);
}

#[test]
fn the_best_of_random_rows_are_those_of_a_sorted_row() {
    let mut numbers = Numbers(3);
    for _ in 0..300 {
        let (length, levels) = (numbers.integer(200) as usize, 1 + numbers.integer(60));
        // Few levels have equal scores; one of them is NaN.
        let value = |level: u32| if level == 0 { f32::NAN } else { level as f32 / 4.0 };
        let row: Vec<f32> = (0..length).map(|_| value(numbers.integer(levels))).collect();
        let mut order: Vec<u32> = (0..length as u32).collect();
        order.sort_by_key(|&i| -row.get(i as usize).map_or(0, |v| if v.is_nan() { -1 } else { (v * 4.0) as i32 }));
        let count = numbers.integer(220) as usize;
        order.truncate(count);
        for activation in Activation::ALL {
            assert_eq!(top(&row, activation, count).classes, order, "{row:?}");
        }
        let sum: f32 = top(&row, Activation::Softmax, length).scores.iter().filter(|s| !s.is_nan()).sum();
        assert!((sum - 1.0).abs() < 1e-4 || row.iter().all(|v| v.is_nan()), "{sum}");
    }
}

/// The names in order of ids, or the error.
fn names(text: &str) -> Result<Vec<String>, String> {
    let names = Names::read(text).map_err(|e| e.message().to_owned())?;
    Ok((0..names.len() as u32).map(|id| names.get(id).unwrap_or("-").to_owned()).collect())
}

#[test]
fn names_are_read_from_lines_and_dictionaries() {
    let check = |text: &str, expected: &[&str]| assert_eq!(names(text).expect(text), expected, "{text}");
    check("cat\ndog\r\n\n  red fox \n", &["cat", "dog", "-", "red fox"]);
    check("\u{feff}cat", &["cat"]);
    check("", &[]);
    check("{}", &[]);
    check("{0: 'person', 1: 'bicycle'}", &["person", "bicycle"]);
    check(" { 2 : \"it's\" ,0:'a, b: {c}',}\n", &["a, b: {c}", "-", "it's"]);
    check("{\"0\": \"cat\", '1': 'dog'}", &["cat", "dog"]);
    check(r"{0: 'it\'s', 1: '\\ \x41\u00e9\U0001F431\101\7\n\t'}", &["it's", "\\ Aé🐱A\u{7}\n\t"]);
    check("{0: '猫', 0: 'cat'}", &["cat"]);
    check("{0: ''}", &["-"]);
    let check = |text: &str, expected: &str| {
        assert_eq!(names(text).expect_err(text), format!("names of classes: {expected}"), "{text}");
    };
    check("{", "byte 1: expected the id of a class, found the end");
    check("{0 'a'}", "byte 3: expected ':', found \"'a'}\"");
    check("{0: a}", "byte 4: expected a name in quotes, found \"a}\"");
    check("{0: 'a' 1: 'b'}", "byte 8: expected '}', found \"1: 'b'}\"");
    check("{0: 'a'} x", "byte 9: expected the end, found \"x\"");
    check("{0: 'a", "byte 6: expected the end of the name, ', found the end");
    check("{-1: 'a'}", "byte 1: expected the id of a class, found \"-1: 'a'}\"");
    check("{'+1': 'a'}", "byte 1: expected the id of a class, found \"'+1': 'a'}\"");
    check(r"{0: '\N{CAT}'}", "byte 5: expected a character or an escape of Python, found \"\\\\N{CAT}'}\"");
    check(r"{0: '\ud800'}", "byte 5: expected a character or an escape of Python, found \"\\\\ud800'}\"");
    check(r"{0: '\x4'}", "byte 5: expected a character or an escape of Python, found \"\\\\x4'}\"");
}

#[test]
fn names_are_bounded() {
    let text = format!("{{{NAMES_MAX}: 'a'}}");
    assert_eq!(names(&text).expect_err("an error"), "byte 1: class 65536 cannot have a name: the greatest is 65535");
    let text = format!("\n{}", "a".repeat(NAME_BYTES_MAX + 1));
    assert_eq!(names(&text).expect_err("an error"), "line 2: the name has 1025 bytes, at most 1024 are read");
    let text = "a\n".repeat(NAMES_BYTES_MAX / 2 + 1);
    assert_eq!(names(&text).expect_err("an error"), "the names have 4194306 bytes, at most 4194304 are read");
    assert!(names(&"\n".repeat(NAMES_MAX + 1)).is_err() && names(&"\n".repeat(NAMES_MAX)).is_ok());
    assert!(names("{99999999999999999999999: 'a'}").is_err());
}

#[test]
fn arbitrary_dictionaries_do_not_panic_and_written_ones_are_read_back() {
    let mut numbers = Numbers(5);
    let pieces = ["{", "}", "'", "\"", "\\", ":", ",", "0", "12", "x4", "u00e9", " ", "é", "🐱", "\n", "a", "0: 'a', "];
    for _ in 0..50_000 {
        let count = numbers.integer(14);
        let text: String = (0..count).map(|_| pieces[numbers.integer(pieces.len() as u32) as usize]).collect();
        let _ = Names::from_dict(&format!("{{{text}"));
        let _ = Names::read(&text);
    }
    for _ in 0..2000 {
        let count = numbers.integer(6);
        let word = |numbers: &mut Numbers| -> String {
            let length = 1 + numbers.integer(8);
            (0..length).map(|_| pieces[numbers.integer(pieces.len() as u32) as usize]).collect()
        };
        let expected: Vec<String> = (0..count).map(|_| word(&mut numbers)).collect();
        let entry = |(id, name): (usize, &String)| format!("{id}: {}", python(name));
        let text = format!("{{{}}}", expected.iter().enumerate().map(entry).collect::<Vec<_>>().join(", "));
        assert_eq!(names(&text).expect(&text), expected, "{text}");
    }
}

/// The text as Python prints it.
fn python(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let escaped = text.replace('\\', "\\\\").replace('\n', "\\n").replace(quote, &format!("\\{quote}"));
    format!("{quote}{escaped}{quote}")
}
