//! Log lines of a model's code (B-PY-19), with their file and line number.

use crate::frames::LogRef;
use crate::generated::LogLevel;
use log::{Level, Record};

/// Maximum bytes of a line: a little more than the log shows, so that the log marks the line as cut.
const LINE_BYTES_MAX: usize = 17 << 10;
const FILE_BYTES_MAX: usize = 256;

/// Writes a line if its level is enabled. The log itself escapes control characters of all sources.
pub(crate) fn write(line: LogRef<'_>) {
    write_to(log::logger(), log::max_level(), line);
}

fn write_to(log: &dyn log::Log, shown: log::LevelFilter, line: LogRef<'_>) {
    let level = match line.level {
        LogLevel::Verbose => Level::Debug,
        LogLevel::Info => Level::Info,
        LogLevel::Warning => Level::Warn,
        LogLevel::Error => Level::Error,
    };
    if level > shown {
        return;
    }
    log.log(
        &Record::builder()
            .level(level)
            .target("model")
            .file(Some(cut(line.file, FILE_BYTES_MAX)))
            .line(Some(line.line))
            .args(format_args!("{}", cut(line.text, LINE_BYTES_MAX)))
            .build(),
    );
}

/// The first `most` bytes of a text at most, in whole characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::LevelFilter;
    use parking_lot::Mutex;

    #[derive(Default)]
    struct Kept(Mutex<Vec<(Level, String, u32, String)>>);

    impl log::Log for Kept {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &Record<'_>) {
            let file = record.file().expect("a file").to_owned();
            self.0.lock().push((record.level(), file, record.line().expect("a line"), record.args().to_string()));
        }
        fn flush(&self) {}
    }

    fn line(level: LogLevel, text: &str) -> LogRef<'_> {
        LogRef { level, file: "model.py", line: 12, text }
    }

    #[test]
    fn b_py_19_a_line_has_its_source_location_and_is_filtered_by_level() {
        let kept = Kept::default();
        for level in [LogLevel::Verbose, LogLevel::Info, LogLevel::Warning, LogLevel::Error] {
            write_to(&kept, LevelFilter::Info, line(level, "x"));
        }
        write_to(&kept, LevelFilter::Debug, line(LogLevel::Verbose, "x"));
        let shown = |level| (level, "model.py".to_owned(), 12, "x".to_owned());
        assert_eq!(*kept.0.lock(), [Level::Info, Level::Warn, Level::Error, Level::Debug].map(shown));
    }

    #[test]
    fn b_sec_07_a_line_is_cut_in_whole_characters() {
        let kept = Kept::default();
        let long = "é".repeat(LINE_BYTES_MAX);
        let file = "x".repeat(1000);
        write_to(&kept, LevelFilter::Info, LogRef { file: &file, ..line(LogLevel::Info, &long) });
        let (_, file, _, text) = kept.0.lock().remove(0);
        assert_eq!((file.len(), text.len()), (FILE_BYTES_MAX, LINE_BYTES_MAX));
        assert!(text.chars().all(|c| c == 'é'));
    }
}
