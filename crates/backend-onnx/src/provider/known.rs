//! What a search for providers found, for as long as nothing changed where it looked: a load on a machine with a GPU asks anew, and most of the
//! search is reading dozens of ELF files.
//!
//! Invariant: what is given out is what a search would find now, as far as times of directories and files tell. One whose time is so young that
//! the next change could have the same is never relied on.

use super::places::Places;
use super::report::{Report, candidates};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How coarse times of file systems may be: two seconds on FAT, and a tick of the kernel, 10 ms at most, on all that count.
const COARSE: Duration = Duration::from_secs(2);

/// Device, inode, bytes, and when it was last changed in any way.
type State = Option<(u64, u64, u64, i64, i64)>;

/// The last search, if it can be relied on.
pub(crate) struct Known(Option<Last>);

struct Last {
    places: Places,
    /// What it depended on, as it was.
    states: Vec<(PathBuf, State)>,
    found: Report,
}

impl Known {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// What `search` finds in `places`, without searching where nothing changed since it did.
    pub(crate) fn of(&mut self, places: Places, now: SystemTime, search: impl FnOnce(&Places) -> Report) -> Report {
        if let Some(last) = &self.0
            && last.places == places
            && last.states.iter().all(|(path, state)| state_of(path) == *state)
        {
            return last.found.clone();
        }
        let before = states_of(watched(&places));
        let found = search(&places);
        let files = [&found.cuda, &found.tensorrt].into_iter().flat_map(|p| {
            let libraries = p.libraries.iter().filter_map(|l| l.file.clone());
            libraries.chain(p.file.clone())
        });
        let states: Vec<_> = before.into_iter().chain(states_of(files.collect())).collect();
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settled = now.saturating_sub(COARSE).as_secs() as i64;
        let is_settled = states.iter().filter_map(|(_, state)| *state).all(|(.., seconds, _)| seconds < settled);
        self.0 = is_settled.then(|| Last { places, states, found: found.clone() });
        found
    }
}

fn states_of(paths: Vec<PathBuf>) -> Vec<(PathBuf, State)> {
    paths.into_iter().map(|path| (path.clone(), state_of(&path))).collect()
}

fn state_of(path: &Path) -> State {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

/// Files and directories by which a search may find something else: those it looks into, and those in which they may appear.
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
            // Of a package of NVIDIA's, too, whose directory of libraries may come later.
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
        assert_eq!((ask(&places, now), ask(&places, now)), (1, 2), "what was made a moment ago is not relied on");
        assert_eq!((ask(&places, later), ask(&places, later), ask(&places, now)), (3, 3, 3));
        let capi = packages.join("onnxruntime/capi");
        std::fs::create_dir_all(&capi).expect("made");
        std::fs::write(capi.join("libonnxruntime_providers_cuda.so"), "no library").expect("written");
        assert_eq!((ask(&places, later), ask(&places, later)), (4, 4), "a package came");
        let other = Places { provider_directory: Some(capi.clone()), ..places.clone() };
        assert_eq!((ask(&other, later), ask(&other, later)), (5, 5), "other places");
        std::fs::write(lib.join("libcudart.so.13"), "").expect("written");
        assert_eq!((ask(&other, later), ask(&other, later)), (6, 6), "a file came");
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
