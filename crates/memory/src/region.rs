//! Regions of system and CUDA shared memory that clients registered (memory.md §1, §2), in one namespace.
//!
//! Does not check whether clients may register (`--allow-client-shm`), and parses nothing.
//!
//! Invariant: a region stays mapped, listed and usable while any window into it lives; one that is unregistered
//! meanwhile ends with its last window (1.9).

use crate::map::{MapError, Mapping};
use crate::sigbus::SLOTS;
use device::{Handle, Imported, OpenError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use tensor::{Base, Code, DeviceMemory, Error, Exported, Extent, RegionMemory, RegionRef, Result};

/// Keys of Triton's own Python backend; rejected, so that no client can write into such a segment.
const RESERVED_PREFIX: &str = "triton_python_backend_shm_region_";

/// Regions visited under one lock: some microseconds.
const WALK_REGIONS_MAX: usize = 32;

/// Limits of a registry.
#[derive(Clone, Copy, Debug)]
pub struct RegionLimits {
    /// Most regions.
    pub regions_max: usize,
    /// Mapped bytes of all regions together.
    pub mapped_bytes_max: u64,
}

impl Default for RegionLimits {
    fn default() -> Self {
        Self { regions_max: SLOTS, mapped_bytes_max: 1 << 40 }
    }
}

/// Kind of shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// POSIX shared memory.
    System,
    /// Memory of a GPU.
    Cuda,
}

/// A region as reported by status calls.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct RegionStatus {
    pub name: String,
    pub byte_size: u64,
    pub source: RegionSource,
}

/// Where a region's bytes come from.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum RegionSource {
    System { key: String, offset: u64 },
    Cuda { device_id: u32 },
}

impl RegionSource {
    fn kind(&self) -> RegionKind {
        match self {
            Self::System { .. } => RegionKind::System,
            Self::Cuda { .. } => RegionKind::Cuda,
        }
    }
}

/// Registered regions by name. Cheap to clone; clones share the regions.
#[derive(Clone, Default)]
pub struct RegionRegistry {
    shared: Arc<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    limits: RegionLimits,
    /// Held during a registration, so that mapping a file happens outside the lock that inferences take.
    registering: Mutex<()>,
    regions: Mutex<Table>,
}

/// The regions and their total size. Walks take steps of `WALK_REGIONS_MAX` per lock, which inferences need too.
#[derive(Default)]
struct Table {
    by_name: BTreeMap<String, RegistryEntry>,
    bytes: u64,
}

impl Table {
    fn insert(&mut self, name: String, entry: RegistryEntry) {
        self.bytes = self.bytes.saturating_add(entry.region.status.byte_size);
        self.by_name.insert(name, entry);
    }

    fn remove(&mut self, name: &str) -> Option<RegistryEntry> {
        let entry = self.by_name.remove(name)?;
        self.bytes = self.bytes.saturating_sub(entry.region.status.byte_size);
        Some(entry)
    }

    /// Removes a region; one in use is only marked.
    fn forget(&mut self, name: &str) -> Option<RegistryEntry> {
        let entry = self.by_name.get_mut(name)?;
        if entry.windows > 0 {
            entry.awaiting_unregister = true;
            return None;
        }
        self.remove(name)
    }

    /// The first regions after `behind`, at most one step.
    fn step(&self, behind: Option<&str>) -> impl Iterator<Item = (&String, &RegistryEntry)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<str, _>((from, Bound::Unbounded)).take(WALK_REGIONS_MAX)
    }
}

struct RegistryEntry {
    region: Arc<Region>,
    /// Live windows.
    windows: usize,
    /// Unregistered while in use: ends with the last window.
    awaiting_unregister: bool,
}

struct Region {
    status: RegionStatus,
    memory: Backing,
}

enum Backing {
    Mapped(Mapping),
    Device(Arc<Imported>),
}

impl Backing {
    fn is_intact(&self) -> bool {
        match self {
            Self::Mapped(mapping) => mapping.is_intact(),
            Self::Device(_) => true,
        }
    }
}

impl RegionRegistry {
    /// An empty registry.
    pub fn new(limits: RegionLimits) -> Self {
        Self { shared: Arc::new(RegistryState { limits, ..RegistryState::default() }) }
    }

    /// Maps `byte_size` bytes at `offset` of the object `key` under `name`.
    ///
    /// # Errors
    /// The texts of memory.md 1.6, checked in its order.
    pub fn register(&self, name: &str, key: &str, offset: u64, byte_size: u64) -> Result<()> {
        let bare = key.trim_start_matches('/');
        if bare.is_empty() {
            return Err(Error::invalid(format!(
                "cannot register shared memory region '{name}' - invalid shm key '{key}'"
            )));
        }
        if bare.starts_with(RESERVED_PREFIX) {
            return Err(Error::invalid(format!(
                "cannot register shared memory region '{name}' with key '{key}' as the key contains the \
                 reserved prefix '{RESERVED_PREFIX}'"
            )));
        }
        let _one_at_a_time = self.shared.registering.lock();
        let used = self.check_unused(name)?;
        let limits = &self.shared.limits;
        let invalid_args =
            |what: &str| Error::invalid(format!("failed to register shared memory region '{name}': {what}"));
        let mapping = Mapping::open(key, offset, byte_size).map_err(|e| match e {
            MapError::Open => Error::malformed(format!("Unable to open shared memory region: '{key}'")),
            MapError::NotAFile => Error::malformed(format!("Invalid shared memory region: '{key}'")),
            MapError::Bounds => invalid_args("invalid args"),
            // No separator before the system's message: Triton has none.
            MapError::Map(e) => invalid_args(&format!("unable to process address space{}", strerror(&e))),
            MapError::Full => over_limit(name, limits),
        })?;
        // After Triton's own checks, so that an absurd size gets Triton's text; the mapping is still untouched.
        let source = RegionSource::System { key: key.to_owned(), offset };
        self.keep(RegionStatus { name: name.to_owned(), byte_size, source }, Backing::Mapped(mapping), used)
    }

    /// Opens `byte_size` bytes of GPU memory of another process under `name`. `device_id` is our ordinal.
    ///
    /// # Errors
    /// The texts of memory.md 2.1, checked in its order. The driver's message is only logged.
    pub fn register_cuda(&self, name: &str, handle: Handle, device_id: i64, byte_size: u64) -> Result<()> {
        let _one_at_a_time = self.shared.registering.lock();
        let used = self.check_unused(name)?;
        let anonymous = || Error::invalid("failed to register shared memory region: invalid args");
        // An invalid number fails like a device that the driver rejects.
        let device = u32::try_from(device_id).unwrap_or(u32::MAX);
        let opened = Imported::open(device, handle).map_err(|refused| match refused {
            OpenError::NoDevice(_) => {
                Error::invalid(format!("failed to register CUDA shared memory region: '{name}', GPUs not supported"))
            }
            OpenError::Lost(why) => {
                Error::environment(format!("failed to register CUDA shared memory region: '{name}', {}", why.message()))
            }
            OpenError::Failed(why) => {
                log::error!(
                    "failed to open CUDA IPC handle of region '{name}' on device {device_id}: {}",
                    why.message()
                );
                anonymous()
            }
        })?;
        if byte_size > opened.len() as u64 {
            return Err(Error::invalid(format!("failed to register shared memory region '{name}': invalid args")));
        }
        let status =
            RegionStatus { name: name.to_owned(), byte_size, source: RegionSource::Cuda { device_id: device } };
        self.keep(status, Backing::Device(opened), used)
    }

    /// Rejects a name that is in use by either kind; returns the number of regions and their bytes.
    fn check_unused(&self, name: &str) -> Result<(usize, u64)> {
        let table = self.shared.regions.lock();
        if table.by_name.contains_key(name) {
            let text = format!("shared memory region '{name}' already in manager");
            return Err(Error::new(Code::AlreadyExists, text));
        }
        Ok((table.by_name.len(), table.bytes))
    }

    fn keep(&self, status: RegionStatus, mut memory: Backing, (regions, bytes): (usize, u64)) -> Result<()> {
        let limits = &self.shared.limits;
        if regions >= limits.regions_max || bytes.saturating_add(status.byte_size) > limits.mapped_bytes_max {
            return Err(over_limit(&status.name, limits));
        }
        if let Backing::Mapped(mapping) = &mut memory {
            mapping.lock_pages();
        }
        let name = status.name.clone();
        let entry =
            RegistryEntry { region: Arc::new(Region { status, memory }), windows: 0, awaiting_unregister: false };
        self.shared.regions.lock().insert(name, entry);
        Ok(())
    }

    /// Removes a region; one in use stays until its last window. Unknown names and the other kind are no error (1.9).
    pub fn unregister(&self, kind: RegionKind, name: &str) {
        let mut table = self.shared.regions.lock();
        let is_it = table.by_name.get(name).is_some_and(|entry| entry.region.status.source.kind() == kind);
        let gone = if is_it { table.forget(name) } else { None };
        drop(table);
        drop(gone); // unmapped outside the lock
    }

    /// Removes every region, like `unregister`.
    pub fn forget_all(&self) {
        self.unregister_all(RegionKind::System);
        self.unregister_all(RegionKind::Cuda);
    }

    /// Removes every region of a kind, like `unregister`.
    pub fn unregister_all(&self, kind: RegionKind) {
        let mut last = None;
        loop {
            let mut table = self.shared.regions.lock();
            let step: Vec<_> =
                table.step(last.as_deref()).map(|(name, e)| (name.clone(), e.region.status.source.kind())).collect();
            let of_kind = step.iter().filter(|(_, of)| *of == kind);
            let gone: Vec<RegistryEntry> = of_kind.filter_map(|(name, _)| table.forget(name)).collect();
            drop(table);
            drop(gone);
            last = step.into_iter().next_back().map(|(name, _)| name);
            if last.is_none() {
                return;
            }
        }
    }

    /// Status of one region of a kind, or of all of them sorted by name.
    ///
    /// # Errors
    /// NOT_FOUND; with another text if the name belongs to the other kind (1.8).
    pub fn status(&self, kind: RegionKind, name: Option<&str>) -> Result<Vec<RegionStatus>> {
        let Some(name) = name else {
            let mut all = self.status_of_all();
            all.retain(|status| status.source.kind() == kind);
            return Ok(all);
        };
        let region = self.shared.regions.lock().by_name.get(name).map(|e| e.region.clone());
        let kind_names = |kind| match kind {
            RegionKind::System => ("system", "system"),
            RegionKind::Cuda => ("cuda", "CUDA"),
        };
        Err(Error::not_found(match region.map(|region| region.status.clone()) {
            Some(status) if status.source.kind() == kind => return Ok(vec![status]),
            Some(status) => format!(
                "The region named '{name}' is registered as {} shared memory, not {} shared memory",
                kind_names(status.source.kind()).1,
                kind_names(kind).1
            ),
            None => format!("Unable to find {} shared memory region: '{name}'", kind_names(kind).0),
        }))
    }

    /// Contains every region that exists for the whole call exactly once.
    fn status_of_all(&self) -> Vec<RegionStatus> {
        let mut all: Vec<RegionStatus> = Vec::new();
        loop {
            let table = self.shared.regions.lock();
            let step: Vec<Arc<Region>> =
                table.step(all.last().map(|s| s.name.as_str())).map(|(_, e)| e.region.clone()).collect();
            drop(table);
            if step.is_empty() {
                return all;
            }
            all.extend(step.iter().map(|region| region.status.clone()));
        }
    }

    /// Returns a pinned window of `byte_size` bytes at `offset`, relative to the registered offset.
    ///
    /// # Errors
    /// The texts of memory.md 1.7 in their order; `Invalid shared memory region` if its owner has truncated the file.
    pub fn resolve(&self, name: &str, offset: u64, byte_size: u64) -> Result<RegionRef> {
        let mut map = self.shared.regions.lock();
        let Some(entry) = map.by_name.get_mut(name) else {
            return Err(Error::not_found(format!("Unable to find shared memory region: '{name}'")));
        };
        let size = entry.region.status.byte_size;
        if offset >= size {
            return Err(Error::invalid(format!("Invalid offset for shared memory region: '{name}'")));
        }
        let Some(end) = offset.checked_add(byte_size) else {
            return Err(Error::invalid(format!(
                "Integer overflow detected: byte_size ({byte_size}) + offset ({offset}) exceeds maximum value \
                 ({}) for region '{name}'",
                u64::MAX
            )));
        };
        let (true, Ok(start), Ok(len)) = (end <= size, usize::try_from(offset), usize::try_from(byte_size)) else {
            return Err(Error::invalid(format!("Invalid offset + byte size for shared memory region: '{name}'")));
        };
        if !entry.region.memory.is_intact() {
            return Err(Error::invalid(format!("Invalid shared memory region: '{name}'")));
        }
        entry.windows += 1;
        let region = Arc::clone(&entry.region);
        drop(map);
        Ok(Arc::new(Window { shared: Arc::clone(&self.shared), region, start, len }))
    }

    /// Registered regions and mapped bytes, for metrics.
    pub fn usage(&self) -> (usize, u64) {
        let table = self.shared.regions.lock();
        (table.by_name.len(), table.bytes)
    }
}

fn over_limit(name: &str, limits: &RegionLimits) -> Error {
    Error::unavailable(format!(
        "failed to register shared memory region '{name}': the limits of {} regions and {} mapped bytes \
         leave no room for it",
        limits.regions_max, limits.mapped_bytes_max
    ))
}

/// The system's message without the number that Rust appends.
fn strerror(e: &std::io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A pinned part of a region.
struct Window {
    shared: Arc<RegistryState>,
    region: Arc<Region>,
    start: usize,
    len: usize,
}

#[allow(unsafe_code)]
// SAFETY: the window was checked against the region's size, `region` keeps the mapping alive for as long as the window
// exists, it is mapped readable and writable, and `sigbus` replaces pages lost to truncation. The mapping's address is
// only handed out as a raw pointer, here and in `map`. Memory of a device has no address here.
unsafe impl RegionMemory for Window {
    fn base(&self) -> Base<'_> {
        match &self.region.memory {
            Backing::Mapped(mapping) => Base::Host(mapping.at(self.start)),
            Backing::Device(_) => Base::Device(self),
        }
    }
    fn len(&self) -> usize {
        self.len
    }
    fn is_intact(&self) -> bool {
        self.region.memory.is_intact()
    }
    fn is_page_locked(&self) -> bool {
        matches!(&self.region.memory, Backing::Mapped(mapping) if mapping.is_locked())
    }
    fn region_name(&self) -> &str {
        &self.region.status.name
    }
    fn extent(&self) -> Extent {
        match (&self.region.memory, &self.region.status.source) {
            (Backing::Device(memory), _) => {
                // No file has such a device number.
                Extent { object: (u64::MAX - u64::from(memory.device()), memory.address()), start: self.start as u64 }
            }
            (Backing::Mapped(mapping), source) => {
                let offset = if let RegionSource::System { offset, .. } = source { *offset } else { 0 };
                Extent { object: mapping.object(), start: offset.saturating_add(self.start as u64) }
            }
        }
    }
}

impl Window {
    /// The opened memory of a device.
    fn imported(&self) -> Result<&Imported> {
        match &self.region.memory {
            Backing::Device(memory) => Ok(memory),
            Backing::Mapped(_) => Err(Error::internal("a mapped region was used as memory of a device")),
        }
    }
}

impl DeviceMemory for Window {
    fn device(&self) -> u32 {
        self.imported().map_or(0, Imported::device)
    }
    fn address(&self) -> u64 {
        self.imported().map_or(0, |memory| memory.address().saturating_add(self.start as u64))
    }
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.imported()?.read(self.start.saturating_add(offset), to)
    }
    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.imported()?.write(self.start.saturating_add(offset), from)
    }
    fn exported(&self) -> Option<Exported> {
        // The client's own handle: an opened one cannot be exported again.
        let handle = self.imported().ok()?.handle().0;
        Some(Exported { handle, offset: self.start as u64 })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let name = &self.region.status.name;
        let mut map = self.shared.regions.lock();
        let Some(entry) = map.by_name.get_mut(name) else { return };
        entry.windows = entry.windows.saturating_sub(1);
        let gone = if entry.windows == 0 && entry.awaiting_unregister { map.remove(name) } else { None };
        drop(map);
        drop(gone);
    }
}

// Miri cannot map files.
#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::{Read, Seek, SeekFrom, Write};
    use tensor::{Code, Data};

    /// A file in /dev/shm that the test removes.
    struct Shm(String);
    impl Shm {
        fn new(tag: &str, contents: &[u8]) -> Self {
            let key = format!("nereid_test_{}_{tag}", std::process::id());
            File::create(format!("/dev/shm/{key}"))
                .and_then(|mut f| f.write_all(contents))
                .expect("/dev/shm is writable");
            Self(key)
        }
        fn file(&self) -> File {
            OpenOptions::new().read(true).write(true).open(format!("/dev/shm/{}", self.0)).expect("just made")
        }
    }
    impl Drop for Shm {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(format!("/dev/shm/{}", self.0));
        }
    }

    fn refused(result: Result<impl Sized>, code: Code, text: &str) {
        let e = result.err().unwrap_or_else(|| panic!("should be refused: {text}"));
        assert_eq!((e.code(), e.message()), (code, text));
    }

    #[test]
    fn registration_checks_run_in_order_with_exact_texts_memory_1_6() {
        let r = RegionRegistry::default();
        let shm = Shm::new("order", &[7; 8192]);
        let key = format!("/{}", shm.0);
        for bad in ["", "/", "///"] {
            let text = format!("cannot register shared memory region 'n' - invalid shm key '{bad}'");
            refused(r.register("n", bad, 0, 4), Code::InvalidArg, &text);
        }
        for bad in ["/triton_python_backend_shm_region_1", "triton_python_backend_shm_region_1"] {
            let text = format!(
                "cannot register shared memory region 'n' with key '{bad}' as the key contains the \
                 reserved prefix 'triton_python_backend_shm_region_'"
            );
            refused(r.register("n", bad, 0, 4), Code::InvalidArg, &text);
        }
        let long = "x".repeat(256);
        for bad in ["/nereid_no_such", "/a/b", "/..", ".", "sem.x", "a\0b", &long] {
            refused(
                r.register("n", bad, 0, 4),
                Code::Internal,
                &format!("Unable to open shared memory region: '{bad}'"),
            );
        }
        let args = "failed to register shared memory region 'n': invalid args";
        for (offset, size) in [(0, 8193), (8192, 1), (u64::MAX, 8194)] {
            refused(r.register("n", &key, offset, size), Code::InvalidArg, args);
        }
        let space = "failed to register shared memory region 'n': unable to process address spaceInvalid argument";
        for (offset, size) in [(u64::MAX, 2), (1, u64::MAX), (u64::MAX, 8193)] {
            refused(r.register("n", &key, offset, size), Code::InvalidArg, space);
        }
        let memory =
            "failed to register shared memory region 'n': unable to process address spaceCannot allocate memory";
        refused(r.register("n", &key, 4096, u64::MAX - 4095), Code::InvalidArg, memory);
        refused(r.register("n", &key, 100, 100), Code::InvalidArg, space);
        refused(r.register("n", &key, 0, 0), Code::InvalidArg, space);
        r.register("n", &key, 4096, 128).expect("fits");
        refused(
            r.register("n", "/nereid_no_such", 0, 4),
            Code::AlreadyExists,
            "shared memory region 'n' already in manager",
        );
        r.register("again", shm.0.as_str(), 0, 8192).expect("one key, two names");
    }

    #[test]
    fn only_regular_files_are_opened_memory_1_13() {
        let r = RegionRegistry::default();
        let shm = Shm::new("target", &[0; 64]);
        let link = format!("/dev/shm/{}_link", shm.0);
        std::os::unix::fs::symlink(format!("/dev/shm/{}", shm.0), &link).expect("symlink");
        let key = format!("{}_link", shm.0);
        refused(r.register("n", &key, 0, 4), Code::Internal, &format!("Unable to open shared memory region: '{key}'"));
        std::fs::remove_file(link).expect("remove");
        let fifo = format!("{}_fifo", shm.0);
        let made =
            std::process::Command::new("mkfifo").arg(format!("/dev/shm/{fifo}")).status().expect("mkfifo").success();
        assert!(made);
        refused(r.register("n", &fifo, 0, 4), Code::Internal, &format!("Invalid shared memory region: '{fifo}'"));
        std::fs::remove_file(format!("/dev/shm/{fifo}")).expect("remove");
    }

    #[test]
    fn windows_are_relative_to_the_region_and_checked_memory_1_7() {
        let r = RegionRegistry::default();
        let mut contents = vec![0u8; 8192];
        contents[4096..4100].copy_from_slice(b"abcd");
        let shm = Shm::new("resolve", &contents);
        r.register("n", &shm.0, 4096, 128).expect("fits");
        refused(r.resolve("x", 0, 1), Code::NotFound, "Unable to find shared memory region: 'x'");
        refused(r.resolve("n", 128, 0), Code::InvalidArg, "Invalid offset for shared memory region: 'n'");
        refused(r.resolve("n", (-32i64) as u64, 1), Code::InvalidArg, "Invalid offset for shared memory region: 'n'");
        let overflow = "Integer overflow detected: byte_size (18446744073709551615) + offset (100) exceeds maximum \
                        value (18446744073709551615) for region 'n'";
        refused(r.resolve("n", 100, u64::MAX), Code::InvalidArg, overflow);
        refused(r.resolve("n", 100, 29), Code::InvalidArg, "Invalid offset + byte size for shared memory region: 'n'");
        let window = r.resolve("n", 1, 3).expect("inside");
        assert_eq!(
            (Data::Region(window.clone()).to_vec().expect("in memory"), window.region_name()),
            (b"bcd".to_vec(), "n")
        );
        assert_eq!(r.resolve("n", 0, 128).expect("all of it").len(), 128);
        assert!(r.resolve("n", 5, 0).expect("an empty window").is_empty());
        r.register("whole", &shm.0, 0, 8192).expect("fits");
        assert_eq!(
            r.resolve("whole", 4097, 3).expect("inside").extent(),
            window.extent(),
            "the same bytes by another name"
        );
    }

    #[test]
    fn status_is_sorted_and_names_what_is_missing_memory_1_8() {
        let r = RegionRegistry::default();
        let shm = Shm::new("status", &[0; 4096]);
        for name in ["b", "a", "B"] {
            r.register(name, &shm.0, 0, 16).expect("fits");
        }
        let names: Vec<_> = r.status(RegionKind::System, None).expect("all").into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["B", "a", "b"]);
        let source = RegionSource::System { key: shm.0.clone(), offset: 0 };
        let one = RegionStatus { name: "a".into(), byte_size: 16, source };
        assert_eq!(r.status(RegionKind::System, Some("a")).expect("known"), [one]);
        refused(
            r.status(RegionKind::System, Some("x")),
            Code::NotFound,
            "Unable to find system shared memory region: 'x'",
        );
        assert_eq!(r.usage(), (3, 48));
    }

    /// A walk over all regions must not delay inferences that use one of them.
    #[test]
    fn a_walk_over_all_regions_releases_the_lock_between_steps() {
        let r = RegionRegistry::default();
        let shm = Shm::new("walk", &[0; 4096]);
        let count = 10 * WALK_REGIONS_MAX;
        for n in 0..count {
            r.register(&format!("r{n:04}"), &shm.0, 0, 16).expect("fits");
        }
        let names: Vec<_> = r.status(RegionKind::System, None).expect("all").into_iter().map(|s| s.name).collect();
        assert!(names.len() == count && names.is_sorted(), "{} regions", names.len());
        assert_eq!(r.shared.regions.lock().step(None).count(), WALK_REGIONS_MAX, "of {count} under one lock");
        let held = r.resolve("r0100", 0, 16).expect("a window");
        r.unregister_all(RegionKind::System);
        assert_eq!(r.usage(), (1, 16), "the one in use");
        drop(held);
        assert_eq!(r.usage(), (0, 0));
    }

    #[test]
    fn a_region_in_use_stays_until_its_last_window_memory_1_9() {
        let r = RegionRegistry::default();
        let shm = Shm::new("use", &[5; 4096]);
        r.register("n", &shm.0, 0, 16).expect("fits");
        r.register("idle", &shm.0, 0, 16).expect("fits");
        let first = r.resolve("n", 0, 16).expect("inside");
        r.unregister(RegionKind::System, "n");
        r.unregister(RegionKind::System, "unknown");
        assert!(r.status(RegionKind::System, Some("n")).is_ok(), "still listed");
        let second = r.resolve("n", 0, 16).expect("still usable by new requests");
        refused(r.register("n", &shm.0, 0, 16), Code::AlreadyExists, "shared memory region 'n' already in manager");
        r.unregister_all(RegionKind::System);
        assert_eq!(r.usage().0, 1, "the idle one went at once");
        drop(first);
        assert_eq!(second.read_at(0), Ok([5]));
        drop(second);
        refused(
            r.status(RegionKind::System, Some("n")),
            Code::NotFound,
            "Unable to find system shared memory region: 'n'",
        );
        r.register("n", &shm.0, 0, 16).expect("free again");
    }

    #[test]
    fn a_window_outlives_its_registry() {
        let r = RegionRegistry::default();
        let shm = Shm::new("outlive", b"hello");
        r.register("n", &shm.0, 0, 5).expect("fits");
        let window = r.resolve("n", 0, 5).expect("inside");
        drop(r);
        assert_eq!(Data::Region(window).to_vec().expect("in memory"), b"hello");
    }

    #[test]
    fn registrations_beyond_the_limits_are_rejected() {
        let r = RegionRegistry::new(RegionLimits { regions_max: 2, mapped_bytes_max: 100 });
        let shm = Shm::new("limits", &[0; 4096]);
        r.register("a", &shm.0, 0, 60).expect("fits");
        assert_eq!(r.register("b", &shm.0, 0, 60).err().map(|e| e.code()), Some(Code::Unavailable));
        r.register("b", &shm.0, 0, 40).expect("fits");
        assert_eq!(r.register("c", &shm.0, 0, 1).err().map(|e| e.code()), Some(Code::Unavailable));
    }

    #[test]
    fn truncation_under_a_live_window_is_survived_and_noticed() {
        let r = RegionRegistry::default();
        let shm = Shm::new("truncate", &[9; 4 * 4096]);
        r.register("n", &shm.0, 0, 4 * 4096).expect("fits");
        let window = r.resolve("n", 0, 4 * 4096).expect("inside");
        let sum = || Data::Region(window.clone()).to_vec().expect("in memory").into_iter().map(u64::from).sum::<u64>();
        assert_eq!(sum(), 9 * 4 * 4096);
        assert!(window.is_intact());
        shm.file().set_len(4096).expect("truncate");
        assert_eq!(sum(), 9 * 4096, "lost pages read as zeros");
        assert!(!window.is_intact());
        window.copy_from(3 * 4096 + 1, &[1]).expect("the page is gone, and replaced for a write as well");
        refused(r.resolve("n", 0, 1), Code::InvalidArg, "Invalid shared memory region: 'n'");
        // Another region is not affected.
        let other = Shm::new("truncate_other", &[1; 64]);
        r.register("o", &other.0, 0, 64).expect("fits");
        assert!(r.resolve("o", 0, 64).expect("inside").is_intact());
    }

    #[test]
    fn writes_reach_the_client_in_place() {
        let r = RegionRegistry::default();
        let shm = Shm::new("write", &[0; 4096]);
        r.register("n", &shm.0, 0, 4096).expect("fits");
        let window = r.resolve("n", 8, 4).expect("inside");
        window.copy_from(0, b"data").expect("inside");
        let mut seen = [0; 4];
        let mut file = shm.file();
        file.seek(SeekFrom::Start(8)).expect("seek");
        file.read_exact(&mut seen).expect("read");
        assert_eq!(&seen, b"data");
    }

    #[test]
    fn one_object_mapped_twice_is_copied_onto_itself_as_if_read_first() {
        const LEN: usize = 3 * 4096 + 100;
        let all: Vec<u8> = (0..5 * 4096).map(|i| (i % 251) as u8).collect();
        // Two registrations, so two mappings: their addresses do not show that they share bytes.
        for (from, to) in [(0, 4096), (4096, 0), (0, 100), (100, 0), (17, 4096 + 18)] {
            let r = RegionRegistry::default();
            let shm = Shm::new("alias", &all);
            r.register("source", &shm.0, 0, 5 * 4096).expect("fits");
            r.register("target", &shm.0, 0, 5 * 4096).expect("fits");
            let source = r.resolve("source", from, LEN as u64).expect("inside");
            let target = r.resolve("target", to, LEN as u64).expect("inside");
            target.copy_from_region(0, &*source, 0, LEN).expect("inside");
            let expected = &all[from as usize..from as usize + LEN];
            assert!(Data::Region(target).to_vec().expect("in memory") == expected, "{from} to {to}");
        }
    }

    #[test]
    fn threads_resolve_and_unregister_at_once() {
        let r = RegionRegistry::default();
        let shm = Shm::new("threads", &[3; 4096]);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..300 {
                        let _ = r.register("n", &shm.0, 0, 4096);
                        if let Ok(w) = r.resolve("n", 0, 4096) {
                            assert_eq!(w.read_at(4095), Ok([3]));
                        }
                        r.unregister(RegionKind::System, "n");
                    }
                });
            }
        });
        assert_eq!(r.usage(), (0, 0));
    }
}
