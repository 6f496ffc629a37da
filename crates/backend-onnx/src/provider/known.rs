//! Caches the search for providers, which each load on a GPU needs and which reads dozens of ELF files.
//!
//! Invariant: a cached result equals that of a new search, as far as timestamps of directories and files tell. Files
//! with a timestamp so recent that the next change could have the same one are never cached.

use super::places::Places;
use super::report::{Report, candidates};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Resolution of file timestamps: two seconds on FAT, at most a kernel tick of 10 ms on the file systems that matter.
const COARSE: Duration = Duration::from_secs(2);

/// Device, inode, size, and time of the last status change (seconds, nanoseconds).
type FileStamp = Option<(u64, u64, u64, i64, i64)>;

pub(crate) struct Known(Option<Last>);

struct Last {
    places: Places,
    /// Stamps of the paths that the search depended on.
    stamps: Vec<(PathBuf, FileStamp)>,
    found: Report,
}

impl Known {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// The result of `search` in `places`, from the cache if no path has changed.
    pub(crate) fn of(&mut self, places: Places, now: SystemTime, search: impl FnOnce(&Places) -> Report) -> Report {
        if let Some(last) = &self.0
            && last.places == places
            && last.stamps.iter().all(|(path, stamp)| stamp_of(path) == *stamp)
        {
            return last.found.clone();
        }
        let before = stamps_of(watched(&places));
        let found = search(&places);
        let files = [&found.cuda, &found.tensorrt].into_iter().flat_map(|p| {
            let libraries = p.libraries.iter().filter_map(|l| l.file.clone());
            libraries.chain(p.file.clone())
        });
        let stamps: Vec<_> = before.into_iter().chain(stamps_of(files.collect())).collect();
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settled = now.saturating_sub(COARSE).as_secs() as i64;
        let is_settled = stamps.iter().filter_map(|(_, stamp)| *stamp).all(|(.., seconds, _)| seconds < settled);
        self.0 = is_settled.then(|| Last { places, stamps, found: found.clone() });
        found
    }
}

fn stamps_of(paths: Vec<PathBuf>) -> Vec<(PathBuf, FileStamp)> {
    paths.into_iter().map(|path| (path.clone(), stamp_of(&path))).collect()
}

fn stamp_of(path: &Path) -> FileStamp {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

/// Files and directories that a search reads, and those in which new ones may appear.
fn watched(places: &Places) -> Vec<PathBuf> {
    let candidates = candidates(places);
    let mut all: Vec<PathBuf> = places.library.iter().cloned().collect();
    for packages in &places.site_packages {
        all.push(packages.clone());
        all.push(packages.join("onnxruntime"));
        all.push(packages.join("nvidia"));
    }
    for beside in std::iter::once(None).chain(candidates.iter().map(|c| Some(c.as_path()))) {
        for directory in places.library_directories(beside) {
            // Includes NVIDIA's package directories, where a library directory may be added later.
            all.extend(directory.parent().map(Path::to_path_buf));
            all.push(directory);
        }
    }
    all.extend(candidates);
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::super::report::report;
    use super::*;
    use std::cell::Cell;

    #[test]
    fn device_providers_are_searched_again_only_when_a_directory_changed() {
        let root = std::env::temp_dir().join(format!("nereid-known-{}", std::process::id()));
        let packages = root.join("site-packages");
        let lib = packages.join("nvidia/cu13/lib");
        std::fs::create_dir_all(&lib).expect("made");
        let places = Places { site_packages: vec![packages.clone()], ..Places::default() };
        let searches = Cell::new(0);
        let mut known = Known::new();
        let later = SystemTime::now() + Duration::from_secs(60);
        let mut ask = |places: &Places, now: SystemTime| {
            let search = |p: &Places| {
                searches.set(searches.get() + 1);
                report(p)
            };
            assert_eq!(known.of(places.clone(), now, search), report(places), "as a search would find");
            searches.get()
        };
        let now = SystemTime::now();
        assert_eq!((ask(&places, now), ask(&places, now)), (1, 2), "recent changes are not cached");
        assert_eq!((ask(&places, later), ask(&places, later), ask(&places, now)), (3, 3, 3));
        let capi = packages.join("onnxruntime/capi");
        std::fs::create_dir_all(&capi).expect("made");
        std::fs::write(capi.join("libonnxruntime_providers_cuda.so"), "no library").expect("written");
        assert_eq!((ask(&places, later), ask(&places, later)), (4, 4), "a package was added");
        let other = Places { provider_directory: Some(capi.clone()), ..places.clone() };
        assert_eq!((ask(&other, later), ask(&other, later)), (5, 5), "other places");
        std::fs::write(lib.join("libcudart.so.13"), "").expect("written");
        assert_eq!((ask(&other, later), ask(&other, later)), (6, 6), "a file was added");
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
