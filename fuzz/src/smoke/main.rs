//! `smoke [--seconds N] [--seed N] [--part K/N] [target …]`: every target over damaged seeds for a few seconds, on any
//! compiler. Processes with the parts 1/2 and 2/2 share the targets.
//!
//! Not a replacement for the libFuzzer targets: it does not see which code an input reaches. It is what every change
//! can afford. A failing input is written to `fuzz/artifacts/<target>/`; `smoke <target> --input <file>` runs it again.
//! The last line is `N passed, N failed`.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

mod mutate;

use mutate::{Random, mutate};
use nereid_fuzz::{TARGETS, Target};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest input: so long that work which grows with its square takes far more than `SLOW`.
const INPUT_BYTES_MAX: usize = 256 * 1024;
/// An input that takes this long, the fastest of three times, is a finding.
const SLOW: Duration = Duration::from_millis(1500);
/// An input that takes this long will not come back.
const HANG: Duration = Duration::from_secs(30);
/// Inputs kept beside the seeds because they were accepted.
const POOL_MAX: usize = 512;

fn main() -> ExitCode {
    let mut seconds = 5.0;
    let mut seed = 1;
    let mut part = (1, 1);
    let mut input = None;
    let mut names = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| usage(&format!("{argument} needs a value")));
        match &argument[..] {
            "--seconds" => seconds = value().parse().unwrap_or_else(|_| usage("--seconds: not a number")),
            "--seed" => seed = value().parse().unwrap_or_else(|_| usage("--seed: not a number")),
            "--part" => part = part_of(&value()).unwrap_or_else(|| usage("--part: not K/N with 1 <= K <= N")),
            "--input" => input = Some(PathBuf::from(value())),
            name if TARGETS.iter().any(|t| t.0 == name) => names.push(name.to_owned()),
            other => usage(&format!("no target {other}")),
        }
    }
    let wanted = TARGETS.iter().filter(|t| names.is_empty() || names.iter().any(|n| n == t.0));
    if let Some(file) = input {
        let data = std::fs::read(&file).unwrap_or_else(|e| usage(&format!("{}: {e}", file.display())));
        for (name, target) in wanted {
            let start = Instant::now();
            let accepted = target(&data);
            println!("{name}: accepted: {accepted}, {:.3} s", start.elapsed().as_secs_f64());
        }
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    let mut count = |name: &str, ok: bool| {
        if ok {
            passed += 1;
        } else {
            // `npm test` repeats these lines at its end.
            println!("FAILED {name}");
            failed += 1;
        }
    };
    count("a planted fault is found", finds_a_planted_fault(seed));
    for &(name, target) in wanted.skip(part.0 - 1).step_by(part.1) {
        count(name, run(name, target, Duration::from_secs_f64(seconds), seed));
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `K/N` as two numbers.
fn part_of(text: &str) -> Option<(usize, usize)> {
    let (part, parts) = text.split_once('/')?;
    let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
    (1..=parts).contains(&part).then_some((part, parts))
}

fn usage(why: &str) -> ! {
    let names = TARGETS.map(|t| t.0).join(", ");
    eprintln!("{why}\nsmoke [--seconds N] [--seed N] [--part K/N] [--input FILE] [target …]; targets: {names}");
    std::process::exit(2);
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(root().join("seeds").join(name)).into_iter().flatten().flatten();
    let mut files: Vec<_> = files.map(|f| f.path()).collect();
    // The order of a directory is the file system's; the run must repeat.
    files.sort();
    files.iter().filter_map(|f| std::fs::read(f).ok()).collect()
}

/// The running input, and its start.
type Current = Arc<Mutex<Option<(Instant, Vec<u8>)>>>;

/// Ends the process when an input does not come back: nothing else can stop a loop without an end.
fn watch(name: &'static str, current: &Current) {
    let current = Arc::downgrade(current);
    std::thread::spawn(move || {
        while let Some(current) = current.upgrade() {
            if let Ok(guard) = current.lock()
                && let Some((since, data)) = &*guard
                && since.elapsed() > HANG
            {
                keep(name, "hang", data);
                println!(
                    "{name}: an input did not come back within {} s\nFAILED {name}\n0 passed, 1 failed",
                    HANG.as_secs()
                );
                std::process::exit(1);
            }
            drop(current);
            std::thread::sleep(Duration::from_millis(200));
        }
    });
}

fn keep(name: &str, what: &str, data: &[u8]) {
    let folder = root().join("artifacts").join(name);
    let file = folder.join(format!("{what}-{}", data.len()));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, data));
    match written {
        Ok(()) => println!("{name}: {what}: smoke {name} --input {}", file.display()),
        Err(e) => println!("{name}: {what}: {}: {e}; the input: {}", file.display(), data.escape_ascii()),
    }
}

/// Whether the target held for `time`.
fn run(name: &'static str, target: Target, time: Duration, seed: u64) -> bool {
    let seeds = seeds(name);
    // Without them nothing gets past the first check.
    if seeds.len() < 3 {
        println!("{name}: {} seeds in {}", seeds.len(), root().join("seeds").join(name).display());
        return false;
    }
    let current = Current::default();
    watch(name, &current);
    let (mut random, mut pool) = (Random::new(seed), seeds.clone());
    let (mut inputs, mut accepted) = (0u64, 0u64);
    let start = Instant::now();
    // On a busy machine a second is over before anything but seeds was tried.
    while start.elapsed() < time || inputs < 4 * seeds.len() as u64 {
        let data = match seeds.get(inputs as usize) {
            Some(seed) => seed.clone(),
            None => mutate(&mut random, &pool, seeds.len(), INPUT_BYTES_MAX),
        };
        inputs += 1;
        *current.lock().unwrap_or_else(|e| e.into_inner()) = Some((Instant::now(), data.clone()));
        let mut fastest = Duration::MAX;
        for _ in 0..3 {
            let from = Instant::now();
            // A panic leaves nothing half done that the next input could see: targets own all they touch.
            let Ok(good) = catch_unwind(AssertUnwindSafe(|| target(&data))) else {
                keep(name, "panic", &data);
                println!("{name}: failed after {inputs} inputs, seed {seed}");
                return false;
            };
            fastest = fastest.min(from.elapsed());
            // Run again only when it was slow: the machine may have been busy with something else.
            if fastest < SLOW {
                accepted += u64::from(good);
                if good && random.below(16) == 0 && data.len() < 4096 {
                    if pool.len() < POOL_MAX {
                        pool.push(data.clone());
                    } else {
                        let at = seeds.len() + random.below(POOL_MAX - seeds.len());
                        pool[at].clone_from(&data);
                    }
                }
                break;
            }
        }
        if fastest >= SLOW {
            keep(name, "slow", &data);
            println!("{name}: {} bytes took {:.1} s, the fastest of three", data.len(), fastest.as_secs_f64());
            return false;
        }
    }
    // Damage that is always noticed, or never, would test nothing.
    let useful = accepted > 0 && accepted < inputs;
    let percent = 100.0 * accepted as f64 / inputs as f64;
    let verdict = if useful { "ok" } else { "failed: accepted none or all" };
    let seconds = start.elapsed().as_secs_f64();
    println!("{name}: {inputs} inputs in {seconds:.1} s, {percent:.1} % accepted, {} seeds: {verdict}", seeds.len());
    useful
}

/// Checks that the search finds a fault that needs one certain byte at one certain place of a seed.
fn finds_a_planted_fault(seed: u64) -> bool {
    let pool = vec![b"{\"inputs\":[{\"name\":\"I11\"}]}".to_vec()];
    let mut random = Random::new(seed);
    let tries = (1..=2_000_000u64).find(|_| {
        let data = mutate(&mut random, &pool, pool.len(), INPUT_BYTES_MAX);
        data.starts_with(b"{\"inputs\":[{") && data.get(12) == Some(&0xff)
    });
    match tries {
        Some(n) => println!("planted fault: found after {n} inputs"),
        None => println!("planted fault: not found"),
    }
    tries.is_some()
}
