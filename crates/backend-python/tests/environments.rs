//! Environments of models and interpreters of this machine (B-PYR-05, B-PYR-06, B-PYB-02).

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use backend_python::{Allowed, Environments, NUMPY_MIN, PYTHON_MIN, Prober};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tensor::Code;

struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("nereid-environments-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(fs::canonicalize(path).unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn program(&self, path: &str, text: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn environments(&self) -> Environments {
        Environments::new(self.at("unpacked-"))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Longer than any probe takes.
const LONG: Duration = Duration::from_secs(60);

fn until(holds: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn anywhere(model_directory: &Path) -> Allowed<'_> {
    Allowed { model_directory, roots: None }
}

fn variables() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

/// The interpreters of pyenv and the system, some without numpy.
fn interpreters() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/usr/bin/python3"), PathBuf::from("/usr/local/bin/python3")];
    for root in ["/root/.pyenv/versions", "/opt/hostedtoolcache/Python"] {
        let versions = fs::read_dir(root).into_iter().flatten().flatten();
        found.extend(versions.flat_map(|v| [v.path().join("bin/python"), v.path().join("x64/bin/python")]));
    }
    // The environment of this project's own tests.
    found.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python"));
    found.retain(|p| p.exists());
    found
}

#[test]
fn b_pyr_05_each_interpreter_of_this_machine_is_usable_or_rejected_with_the_remedy() {
    let found = interpreters();
    if found.is_empty() {
        eprintln!("skipped: there is no Python here");
        return;
    }
    let prober = Prober::default();
    for program in found {
        let output = Command::new(&program)
            .args(["-c", "import sys\nprint('%d %d' % sys.version_info[:2])\nimport numpy\nprint(numpy.__version__)"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<u32> = text.lines().next().unwrap_or("0 0").split(' ').map(|n| n.parse().unwrap()).collect();
        let version = (numbers[0], numbers[1]);
        let numpy = text.lines().nth(1);
        println!("{}: Python {version:?}, numpy {numpy:?}", program.display());
        match prober.probe(&program, &variables(), LONG) {
            Ok(interpreter) => {
                assert!(version >= PYTHON_MIN, "{}", program.display());
                assert_eq!(Some(interpreter.numpy.as_str()), numpy);
                assert!(interpreter.program.is_absolute());
            }
            Err(why) if version < PYTHON_MIN => assert!(why.contains("too old"), "{why}"),
            Err(why) if numpy.is_none() => {
                assert!(
                    why.contains("has no package numpy; get it with: ") && why.contains("-m pip install 'numpy>=1.22'"),
                    "{why}"
                );
            }
            Err(why) => assert!(why.contains(&format!("{}.{} or newer", NUMPY_MIN.0, NUMPY_MIN.1)), "{why}"),
        }
    }
}

#[test]
fn b_pyr_05_an_interpreter_is_probed_once_until_it_changes() {
    let place = Temporary::new();
    let count = place.at("count");
    let script = |version: &str| {
        format!("#!/bin/sh\necho x >> {}\nprintf 'cpython\\n{version}\\n2.0.0\\n%s\\n' \"$0\"\n", count.display())
    };
    let program = place.program("python", &script("3.11.2"));
    let prober = Prober::default();
    for _ in 0..3 {
        assert_eq!(prober.probe(&program, &variables(), LONG).unwrap().version, "3.11.2");
    }
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 1);
    place.program("python", &script("3.12.0"));
    let later = fs::metadata(&program).unwrap().modified().unwrap() + Duration::from_secs(2);
    fs::File::open(&program).unwrap().set_modified(later).unwrap();
    assert_eq!(prober.probe(&program, &variables(), LONG).unwrap().version, "3.12.0");
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 2);
}

#[test]
fn b_pyr_05_a_failure_is_not_remembered() {
    let place = Temporary::new();
    let installed = place.at("installed");
    let program = place.program(
        "python",
        &format!(
            "#!/bin/sh\nprintf 'cpython\\n3.11.2\\n'\ncat {} 2>/dev/null || echo\necho \"$0\"\n",
            installed.display()
        ),
    );
    let prober = Prober::default();
    assert!(prober.probe(&program, &variables(), LONG).unwrap_err().contains("has no package numpy"));
    fs::write(installed, "2.1.0\n").unwrap();
    assert_eq!(prober.probe(&program, &variables(), LONG).unwrap().numpy, "2.1.0");
}

#[test]
fn b_pyr_05_a_program_without_output_is_killed_after_the_timeout() {
    let place = Temporary::new();
    let program = place.program("python", "#!/bin/sh\nexec sleep 60\n");
    let begin = Instant::now();
    let why = Prober::default().probe(&program, &variables(), Duration::from_secs(1)).unwrap_err();
    let expected = "did not report its version within 1 s (stub-timeout-seconds); the next load tries again";
    assert!(why.ends_with(expected), "{why}");
    assert!(begin.elapsed() < Duration::from_secs(8));
    let silent = place.program("other", "#!/bin/sh\nexit 3\n");
    assert!(Prober::default().probe(&silent, &variables(), LONG).unwrap_err().contains("does not run: it ended with"));
    let absent = Prober::default().probe(&place.at("nothing"), &variables(), LONG).unwrap_err();
    assert!(absent.contains("cannot be started"), "{absent}");
}

#[test]
fn b_pyr_05_concurrent_loads_share_one_probe_and_the_next_load_probes_again() {
    let place = Temporary::new();
    let (count, go) = (place.at("count"), place.at("go"));
    // The first run blocks until the others have come, then fails.
    let script = format!(
        "#!/bin/sh\necho x >> {count}\nwhile [ ! -e {go} ]; do sleep 0.01; done\n\
         [ $(wc -l < {count}) -gt 1 ] || exit 3\nprintf 'cpython\\n3.11.2\\n2.0.0\\n%s\\n' \"$0\"\n",
        count = count.display(),
        go = go.display()
    );
    let program = place.program("python", &script);
    let asked = || fs::read_to_string(&count).unwrap_or_default().lines().count();
    let prober = Prober::default();
    let (came, probe) = (AtomicU32::new(0), || prober.probe(&program, &variables(), LONG));
    let answers: Vec<_> = std::thread::scope(|scope| {
        let load = || {
            came.fetch_add(1, Ordering::SeqCst);
            probe()
        };
        let first = scope.spawn(load);
        until(|| asked() == 1);
        let others: Vec<_> = (0..7).map(|_| scope.spawn(load)).collect();
        until(|| came.load(Ordering::SeqCst) == 8);
        // They are a few instructions from where they wait.
        std::thread::sleep(Duration::from_millis(200));
        fs::write(&go, "").unwrap();
        [first].into_iter().chain(others).map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(asked(), 1, "one process for all of them");
    assert!(
        answers.iter().all(|a| a.as_ref().is_err_and(|why| why.contains("does not run: it ended with"))),
        "{answers:?}"
    );
    assert_eq!(probe().unwrap().version, "3.11.2");
    assert_eq!(probe().unwrap().version, "3.11.2");
    assert_eq!(asked(), 2);
}

#[test]
fn b_pyr_06_directories_are_used_in_place() {
    let place = Temporary::new();
    let model = place.at("m");
    place.program("m/env/bin/python", "#!/bin/sh\n");
    let environments = place.environments();
    let open = |path: &str| environments.open(path, &anywhere(&model));

    assert_eq!(open("").unwrap(), None, "an empty path counts as absent");
    let text = |path: &str| open(path).unwrap_err().message().to_owned();
    assert_eq!(text("/no/such/env.tar.gz"), "Failed to get the canonical path for /no/such/env.tar.gz.");
    assert_eq!(
        text("$$TRITON_MODEL_DIRECTORY/nothing"),
        format!("Failed to get the canonical path for {}/nothing.", model.display())
    );
    assert_eq!(
        text("$$TRITON_MODEL_DIRECTORY/env"),
        format!(
            "Path {}/env/bin/activate does not exist. The Python environment should contain an 'activate' script.",
            model.display()
        )
    );
    fs::write(place.at("m/env/bin/activate"), "").unwrap();
    let environment = open("$$TRITON_MODEL_DIRECTORY/env").unwrap().unwrap();
    assert_eq!(environment.python(), place.at("m/env/bin/python"));
}

fn pack(archive: &Path, files: &[(&str, &str)]) {
    let mut builder = tar::Builder::new(GzEncoder::new(fs::File::create(archive).unwrap(), Compression::fast()));
    for (name, contents) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(contents.len() as u64);
        builder.append_data(&mut header, name, contents.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap();
}

#[test]
fn b_pyr_06_an_archive_is_unpacked_once_per_change() {
    let place = Temporary::new();
    let archive = place.at("env.tar.gz");
    let log = place.at("log");
    let unpack = format!("import sys\nopen({:?}, 'a').write('unpacked\\n')\n", log.to_string_lossy());
    // A fake interpreter in the archive: it records that conda-unpack was run.
    let python = format!("#!/bin/sh\necho \"$(basename $1) $VIRTUAL_ENV\" >> {}\n", log.display());
    pack(&archive, &[("bin/python", &python), ("bin/activate", ""), ("bin/conda-unpack", &unpack)]);
    let environments = place.environments();
    let path = archive.to_string_lossy().into_owned();
    let open = || environments.open(&path, &anywhere(&place.0)).unwrap().unwrap();
    let first = open();
    assert_eq!(first, open());
    let root = first.python().parent().unwrap().parent().unwrap().to_path_buf();
    assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_to_string(&log).unwrap(), format!("conda-unpack {}\n", root.display()));

    let later = fs::metadata(&archive).unwrap().modified().unwrap() + Duration::from_secs(2);
    fs::File::open(&archive).unwrap().set_modified(later).unwrap();
    assert_ne!(open(), first);
    drop(environments);
    assert!(!root.exists(), "what was unpacked goes with the server");
}

#[test]
fn b_pyr_06_an_invalid_archive_fails_with_tritons_text() {
    let place = Temporary::new();
    let archive = place.at("env.tar.gz");
    fs::write(&archive, "not an archive").unwrap();
    let error = place.environments().open(&archive.to_string_lossy(), &anywhere(&place.0)).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Internal, "archive_read_open_filename() failed."));
    let left: Vec<_> = fs::read_dir(&place.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["env.tar.gz"], "nothing of it stays");
}

#[test]
fn b_sec_06_failed_archives_do_not_count_towards_the_limit() {
    let place = Temporary::new();
    let environments = place.environments();
    let open = |name: &str| environments.open(&place.at(name).to_string_lossy(), &anywhere(&place.0));
    for n in 0..100 {
        let name = format!("{n}.tar.gz");
        fs::write(place.at(&name), "not an archive").unwrap();
        assert_eq!(open(&name).unwrap_err().message(), "archive_read_open_filename() failed.", "{name}");
    }
    pack(&place.at("good.tar.gz"), &[("bin/activate", "")]);
    assert!(open("good.tar.gz").is_ok());
}

#[test]
fn b_sec_05_with_network_loads_environments_must_be_in_allowed_locations() {
    let place = Temporary::new();
    for root in ["repository/m", "repository/shared", "allowed", "elsewhere"] {
        place.program(&format!("{root}/env/bin/python"), "");
        fs::write(place.at(&format!("{root}/env/bin/activate")), "").unwrap();
    }
    std::os::unix::fs::symlink(place.at("elsewhere/env"), place.at("repository/m/link")).unwrap();
    let (repository, allowed, model) = (place.at("repository"), place.at("allowed"), place.at("repository/m"));
    let environments = place.environments();
    let open = |path: &str| {
        let roots = Some(vec![repository.as_path(), allowed.as_path()]);
        environments.open(path, &Allowed { model_directory: &model, roots }).map(|e| e.is_some())
    };
    let at = |path: &str| place.at(path).to_string_lossy().into_owned();
    assert_eq!(open("$$TRITON_MODEL_DIRECTORY/env"), Ok(true));
    assert_eq!(open(&at("repository/shared/env")), Ok(true));
    assert_eq!(open(&at("allowed/env")), Ok(true));
    for outside in [
        at("elsewhere/env"),
        at("repository/../elsewhere/env"),
        at("repository/m/link"),
        "$$TRITON_MODEL_DIRECTORY/../../elsewhere/env".into(),
    ] {
        let error = open(&outside).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArg);
        assert!(
            error.message().contains("is neither in the model repository nor below a root"),
            "{outside}: {error:?}"
        );
    }
}
