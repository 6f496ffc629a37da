//! Times in a keys file: `2027-01-31` or `2027-01-31T12:00:00Z`, in UTC.

const DAY: u64 = 86_400;

/// Parses a time to seconds since 1970; `None` for any other text.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let seconds = match time {
        None => 0,
        Some(time) => {
            let [hour, minute, second] = numbers(time.strip_suffix('Z')?, ':', [2, 2, 2])?;
            (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)?
        }
    };
    if year < 1970 || !(1..=12).contains(&month) || day == 0 || day > days_of(year, month) {
        return None;
    }
    let days = (1970..year).map(|y| 365 + u64::from(is_leap(y))).sum::<u64>()
        + (1..month).map(|m| days_of(year, m)).sum::<u64>()
        + day
        - 1;
    Some(days * DAY + seconds)
}

fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(between);
    let mut read = [0; 3];
    for (number, digits) in read.iter_mut().zip(digits) {
        let part = parts.next().filter(|p| p.len() == digits && p.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(read)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn times_are_those_of_date() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2026-11-23", 1_795_392_000),
            ("2024-02-29T23:59:59Z", 1_709_251_199),
            ("2000-03-01T00:00:00Z", 951_868_800),
        ] {
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
        for wrong in [
            "",
            "2027",
            "2027-1-1",
            "2027-02-29",
            "2027-13-01",
            "2027-01-00",
            "1969-12-31",
            "2027-01-01T00:00:00",
            "2027-01-01T24:00:00Z",
            "2027-01-01T00:00Z",
            "2027-01-01 00:00:00Z",
            "2027-01-01T00:00:00+01:00",
            "+027-01-01",
            "2027-01-01-01",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
