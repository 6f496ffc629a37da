//! `strftime_now`: the time of a request in UTC, as Python's `strftime` writes it.

use minijinja::{Error, ErrorKind, State, Value};
use std::fmt::Write;

/// Name of the variable with the time in seconds since 1970.
pub(super) const NOW: &str = "__now";

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Longest format in bytes.
const FORMAT_BYTES_MAX: usize = 1024;

pub(super) fn strftime_now(state: &mut State<'_, '_>, format: &str) -> Result<String, Error> {
    let seconds = state.lookup(NOW).and_then(|value: Value| value.as_i64()).unwrap_or(0);
    if format.len() > FORMAT_BYTES_MAX {
        let what =
            format!("a format of {} bytes for strftime_now, of which {FORMAT_BYTES_MAX} are allowed", format.len());
        return Err(Error::new(ErrorKind::InvalidOperation, what));
    }
    Ok(strftime(seconds, format))
}

/// Year, month (1 to 12) and day of a number of days since 1970-01-01. Years begin in March, and 400 are alike.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

fn strftime(seconds: i64, format: &str) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let weekday = (days + 4).rem_euclid(7);
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
    let year_day = before + day + i64::from(is_leap && month > 2);
    let hour12 = (hour + 11) % 12 + 1;
    let (day_name, month_name) = (DAYS[weekday as usize], MONTHS[month as usize - 1]);

    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let rest = chars.as_str();
        // `%-d` is a number without padding.
        let is_bare = rest.starts_with('-') && rest.len() > 1;
        if is_bare {
            chars.next();
        }
        let mut number = |value: i64, width: usize, fill: char| {
            let width = if is_bare { 0 } else { width };
            let text = value.to_string();
            (text.len()..width).for_each(|_| out.push(fill));
            out.push_str(&text);
        };
        match chars.next() {
            Some('Y') => number(year, 4, '0'),
            Some('y') => number(year.rem_euclid(100), 2, '0'),
            Some('C') => number(year.div_euclid(100), 2, '0'),
            Some('m') => number(month, 2, '0'),
            Some('d') => number(day, 2, '0'),
            Some('e') => number(day, 2, ' '),
            Some('j') => number(year_day, 3, '0'),
            Some('H') => number(hour, 2, '0'),
            Some('k') => number(hour, 2, ' '),
            Some('I') => number(hour12, 2, '0'),
            Some('l') => number(hour12, 2, ' '),
            Some('M') => number(minute, 2, '0'),
            Some('S') => number(second, 2, '0'),
            Some('f') => number(0, 6, '0'),
            Some('s') => number(seconds, 0, '0'),
            Some('w') => number(weekday, 0, '0'),
            Some('u') => number((weekday + 6) % 7 + 1, 0, '0'),
            Some('U') => number((year_day + 6 - weekday) / 7, 2, '0'),
            Some('W') => number((year_day + 6 - (weekday + 6) % 7) / 7, 2, '0'),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('B') => out.push_str(month_name),
            Some('b' | 'h') => out.push_str(&month_name[..3]),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('P') => out.push_str(if hour < 12 { "am" } else { "pm" }),
            Some('F') => out.push_str(&strftime(seconds, "%Y-%m-%d")),
            Some('D' | 'x') => out.push_str(&strftime(seconds, "%m/%d/%y")),
            Some('T' | 'X') => out.push_str(&strftime(seconds, "%H:%M:%S")),
            Some('R') => out.push_str(&strftime(seconds, "%H:%M")),
            Some('r') => out.push_str(&strftime(seconds, "%I:%M:%S %p")),
            Some('c') => out.push_str(&strftime(seconds, "%a %b %e %H:%M:%S %Y")),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('%') => out.push('%'),
            // Without a time zone, as a naive time of Python.
            Some('z' | 'Z') => {}
            Some(other) => write!(out, "%{other}").expect("a String takes every text"),
            None => out.push('%'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_python_writes_it() {
        let check = |seconds: i64, format: &str, expected: &str| assert_eq!(strftime(seconds, format), expected);
        check(0, "%Y-%m-%d %H:%M:%S %A %j", "1970-01-01 00:00:00 Thursday 001");
        check(1_709_210_096, "%d %b %Y %B %a %-d %I %p %y %%", "29 Feb 2024 February Thu 29 12 PM 24 %");
        check(951_868_799, "%F %T %j %U %W %u %w", "2000-02-29 23:59:59 060 09 09 2 2");
        check(4_107_542_400, "%c|%e|%-m|%", "Mon Mar  1 00:00:00 2100| 1|3|%");
        check(-1, "%D %R", "12/31/69 23:59");
    }
}
