//! Memory available to this process: the limit of its control group, or the memory of the machine.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Divisor of the memory of a machine without a container's limit: other programs and models have the other half.
const MACHINE_SHARE: u64 = 2;
/// Divisor of what a container leaves after the process's own need. So much is left for what grows between two samples
/// of `pressure`: an output is charged when its run is over.
const GROWTH_SHARE: u64 = 4;
/// Assumed if neither a control group nor the kernel reports it.
const MEMORY_BYTES_DEFAULT: u64 = 4 << 30;

/// Bytes that this process and its neighbours in the same control group may use; read once.
pub fn memory_bytes() -> u64 {
    // Miri cannot read files of the system.
    static BYTES: LazyLock<u64> =
        LazyLock::new(|| if cfg!(miri) { MEMORY_BYTES_DEFAULT } else { read_memory_bytes(Path::new("/")) });
    *BYTES
}

/// CPUs that this process may use, by affinity and quota; at least 1. Read once.
pub fn cpus() -> usize {
    static CPUS: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CPUS
}

/// A control group whose limit is below the memory of the machine: the container of this process, read once.
pub(crate) fn group() -> Option<&'static Group> {
    static GROUP: LazyLock<Option<Group>> = LazyLock::new(|| {
        let group = if cfg!(miri) { None } else { read_group(Path::new("/")) }?;
        Some(Group { own: group.used_bytes()?.min(group.limit), ..group })
    });
    GROUP.as_ref()
}

/// Bytes that requests may hold by default.
pub(crate) fn request_bytes() -> u64 {
    group().map_or_else(|| memory_bytes() / MACHINE_SHARE, Group::request_bytes)
}

/// A control group with a memory limit.
#[derive(Debug)]
pub(crate) struct Group {
    directory: PathBuf,
    is_version_2: bool,
    limit: u64,
    own: u64,
}

impl Group {
    /// Most bytes that its processes may use together.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit
    }

    /// Bytes that they used when the process started.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.own
    }

    /// Bytes that requests may hold by default: what is left, less a part for growth.
    pub(crate) fn request_bytes(&self) -> u64 {
        let rest = self.limit - self.own;
        rest - rest / GROWTH_SHARE
    }

    /// Bytes that they use now, less those of files, which the kernel drops before it kills a process.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        let (usage, prefix) =
            if self.is_version_2 { ("memory.current", "") } else { ("memory.usage_in_bytes", "total_") };
        let text = |file| std::fs::read_to_string(self.directory.join(file)).ok();
        let used: u64 = text(usage)?.trim().parse().ok()?;
        let of_file = |line: &str| {
            let (key, value) = line.split_once(' ')?;
            let is_file = matches!(key.strip_prefix(prefix)?, "inactive_file" | "active_file");
            if is_file { value.trim().parse::<u64>().ok() } else { None }
        };
        Some(used.saturating_sub(text("memory.stat")?.lines().filter_map(of_file).sum()))
    }
}

/// The same as `memory_bytes` for a system whose files are below `root`.
fn read_memory_bytes(root: &Path) -> u64 {
    let group = read_group(root).map(|group| group.limit);
    group.or_else(|| physical(root)).unwrap_or(MEMORY_BYTES_DEFAULT)
}

fn physical(root: &Path) -> Option<u64> {
    mem_total(&std::fs::read_to_string(root.join("proc/meminfo")).ok()?)
}

fn read_group(root: &Path) -> Option<Group> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let least = groups.lines().filter_map(|line| limited(root, line)).min_by_key(|group| group.limit)?;
    // A group without a limit of its own has "max", or in version 1 a number near 2^63.
    physical(root).is_none_or(|bytes| least.limit < bytes).then_some(least)
}

/// The group with the least limit along the path of one line of /proc/self/cgroup, `hierarchy:controllers:path`.
fn limited(root: &Path, line: &str) -> Option<Group> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (base, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|c| c == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let base = root.join(base);
    // Inside a container the path is that of the host and does not exist; the group itself is mounted at the base.
    let own = base.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|p| p.starts_with(&base)).filter_map(|directory| {
        let limit = std::fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()?;
        Some(Group { directory: directory.to_owned(), is_version_2: controllers.is_empty(), limit, own: 0 })
    });
    groups.min_by_key(|group| group.limit)
}

/// `MemTotal:       24103868 kB`
fn mem_total(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Checks the result for a root with these files.
    fn check(name: &str, files: &[(&str, &str)], expected: u64) {
        let root = std::env::temp_dir().join(format!("nereid-machine-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("not the root")).expect("writable");
            std::fs::write(path, text).expect("writable");
        }
        let found = read_memory_bytes(&root);
        let _ = std::fs::remove_dir_all(&root);
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn the_least_limit_of_groups_and_machine_applies() {
        let meminfo = ("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 3 kB\n");
        check("nothing", &[], MEMORY_BYTES_DEFAULT);
        check("machine", &[meminfo], 1 << 20);
        let group = ("proc/self/cgroup", "0::/a/b\n");
        check("version-2", &[meminfo, group, ("sys/fs/cgroup/a/b/memory.max", "4096\n")], 4096);
        check("unlimited", &[meminfo, group, ("sys/fs/cgroup/a/b/memory.max", "max\n")], 1 << 20);
        let parent = ("sys/fs/cgroup/a/memory.max", "512\n");
        check("parent", &[meminfo, group, parent, ("sys/fs/cgroup/a/b/memory.max", "4096\n")], 512);
        check("container", &[meminfo, group, ("sys/fs/cgroup/memory.max", "8192\n")], 8192);
        let group = ("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/y\n0::/\n");
        let file = "sys/fs/cgroup/memory/x/memory.limit_in_bytes";
        check("version-1", &[meminfo, group, (file, "65536\n")], 65536);
        check("version-1-unlimited", &[meminfo, group, (file, "9223372036854771712\n")], 1 << 20);
    }
}
