//! Memory available to this process: the limit of its control group, or the memory of the machine.

use std::path::Path;
use std::sync::OnceLock;

/// Assumed if neither a control group nor the kernel reports it.
const MEMORY_BYTES_DEFAULT: u64 = 4 << 30;

/// Bytes that this process and its neighbours in the same control group may use; read once.
pub fn memory_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    // Miri cannot read files of the system.
    *BYTES.get_or_init(|| if cfg!(miri) { MEMORY_BYTES_DEFAULT } else { read_memory_bytes(Path::new("/")) })
}

/// The same for a system whose files are below `root`.
fn read_memory_bytes(root: &Path) -> u64 {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let groups = text("proc/self/cgroup").unwrap_or_default();
    let limit = groups.lines().filter_map(|line| limit_of(root, line)).min();
    let physical = text("proc/meminfo").and_then(|t| mem_total(&t));
    // A group without a limit of its own has "max", or in version 1 a number near 2^63.
    limit.into_iter().chain(physical).min().unwrap_or(MEMORY_BYTES_DEFAULT)
}

/// The least limit along the path of one line of /proc/self/cgroup, `hierarchy:controllers:path`.
fn limit_of(root: &Path, line: &str) -> Option<u64> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let (base, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|c| c == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let base = root.join(base);
    // Inside a container the path is that of the host and does not exist; the group itself is mounted at the base.
    let own = base.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|p| p.starts_with(&base));
    groups.filter_map(|group| std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
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
