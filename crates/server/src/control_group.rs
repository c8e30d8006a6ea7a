//! The memory limit of the server's control group. Containers and units of systemd have one.
//!
//! Source: the kernel's pages "Control Group v2" (`memory.max`) and "Memory Resource Controller" (v1, `memory.limit_in_bytes`), and proc(5)
//! on `/proc/self/cgroup`.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use config::Settings;
use engine::machine::suggested_maxmemory;

use crate::log;

/// Version 1 has a number near 2^63 for no limit.
const UNLIMITED_MIN: u64 = 1 << 62;
const MEGABYTE: u64 = 1 << 20;

/// Logs a warning if the system would end the server before `maxmemory` is reached. Runs at the start and after each change.
pub(crate) fn warn_of_limit(settings: &Settings) {
    if let Some(text) = memory_limit().and_then(|limit| warning(limit, settings.maxmemory.get())) {
        log::warning(text);
    }
}

/// Returns the memory limit of the process's control group at the start.
pub(crate) fn memory_limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        limit_bytes(Path::new("/sys/fs/cgroup"), &groups)
    })
}

/// Returns the warning for a limit, if `maxmemory` doesn't keep the data below it.
fn warning(limit: u64, maxmemory: u64) -> Option<String> {
    if (1..limit).contains(&maxmemory) {
        return None;
    }
    let set = if maxmemory == 0 { "maxmemory is not set".to_owned() } else { format!("maxmemory is {maxmemory}") };
    Some(format!(
        "The control group of this process may use {limit} bytes of memory, and {set}: the system will kill the server when it \
         needs more. Set maxmemory to {}mb or less.",
        suggested_maxmemory(limit) / MEGABYTE
    ))
}

/// Returns the least memory limit of the groups in `/proc/self/cgroup` and of their ancestors.
fn limit_bytes(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "" => least(root, path, "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                least(&root.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

/// Returns the least limit of a group below `root` and of its ancestors. In a container the group's path may be the host's path, and `root`
/// is then the container's own group.
fn least(root: &Path, path: &str, file: &str) -> Option<u64> {
    let group = Path::new(path.trim_start_matches('/'));
    let limits = group.ancestors().filter_map(|group| {
        let text = fs::read_to_string(root.join(group).join(file)).ok()?;
        text.trim().parse().ok().filter(|&bytes| bytes < UNLIMITED_MIN)
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let root = std::env::temp_dir().join(format!("penstock-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "62914560\n");
        write("a/b/memory.max", "max\n");
        write("memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/c/d/memory.limit_in_bytes", "1000000\n");
        write("memory/memory.limit_in_bytes", "2000000\n");
        let check = |groups: &str, expected| assert_eq!(limit_bytes(&root, groups), expected, "{groups:?}");
        check("0::/a/b\n", Some(62_914_560));
        check("0::/\n", None);
        check("", None);
        check("nonsense\n1:x\n", None);
        check("3:cpu,memory:/c\n2:pids:/a\n", Some(2_000_000));
        check("3:memory:/c/d\n0::/a\n", Some(1_000_000));
        check("3:memory:/not/mounted/here\n", Some(2_000_000));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_warning_says_what_to_set() {
        let limit = 60 * MEGABYTE;
        assert_eq!(warning(limit, 45 * MEGABYTE), None);
        assert!(warning(limit, 0).unwrap().ends_with("Set maxmemory to 45mb or less."));
        assert!(warning(limit, 60 * MEGABYTE).unwrap().contains("maxmemory is 62914560"));
        assert!(warning(1, 0).unwrap().ends_with("Set maxmemory to 1mb or less."));
    }
}
