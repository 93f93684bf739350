//! What a run leaves behind: processes and files that nobody ended.
//!
//! Called by `check` as its last step and by `step` at a deadline. A run puts a mark into the environment of
//! everything it starts; a process that carries the mark after the last step is a remain, whatever its name.
//! Workers and keepers of this build are found by name as well, in case one lost its environment. Temporary
//! files go below the build folder, so the same look works for them and a parallel run elsewhere is no harm.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable that marks the processes of a run.
pub const MARK: &str = "BIREME_CHECK_RUN";

/// Names of processes that must end with their driver.
const PROCESSES: &[&str] = &["bireme-worker", "bireme-keeper", "bireme-zygote"];

/// Begins the name of every file that the library makes outside of a folder that the user named.
const FILE_PREFIX: &str = "bireme";

/// Ending is asynchronous: a worker learns of its driver's death after it.
const GRACE: Duration = Duration::from_secs(3);

/// A process that is still there.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    name: String,
}

/// Where the steps of a run put temporary files.
pub fn temporary_folder(target: &Path) -> io::Result<PathBuf> {
    let folder = target.join("check").join("tmp");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Takes away what an earlier run left there, so that a run answers only for its own.
pub fn clear_temporary_folder(target: &Path) {
    // Usually there is none; one that cannot be removed shows up as a remain.
    let _ = fs::remove_dir_all(target.join("check").join("tmp"));
}

/// Names of shared-memory files that are there already, so that a run answers only for its own.
pub fn shared_memory_files() -> Vec<String> {
    files_of_ours(Path::new("/dev/shm"))
}

/// What a run left behind, one line each, after a moment in which the last processes may end.
pub fn look(mark: &str, target: &Path, shared_memory_before: &[String]) -> Vec<String> {
    let deadline = Instant::now() + GRACE;
    loop {
        let found = look_once(mark, target, shared_memory_before);
        if found.is_empty() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends every process that carries the mark, ourselves apart.
pub fn end_marked(mark: &str) {
    for process in processes(|entry| carries(entry, mark)) {
        // A process that ended meanwhile is as good.
        let _ = Command::new("kill").args(["-KILL", &process.id.to_string()]).status();
    }
}

fn look_once(mark: &str, target: &Path, shared_memory_before: &[String]) -> Vec<String> {
    let left = processes(|entry| carries(entry, mark) || is_worker_of(entry, target));
    let mut lines: Vec<String> =
        left.iter().map(|process| format!("process {} `{}` is still running", process.id, process.name)).collect();
    let temporary = target.join("check").join("tmp");
    lines.extend(
        files_of_ours(&temporary).iter().map(|name| format!("file {} is left", temporary.join(name).display())),
    );
    let shared = shared_memory_files();
    let new = shared.iter().filter(|name| !shared_memory_before.contains(name));
    lines.extend(new.map(|name| format!("file /dev/shm/{name} is left")));
    lines
}

/// Processes other than this one for whose folder in `/proc` the test holds.
fn processes(is_wanted: impl Fn(&Path) -> bool) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    let mut found: Vec<Process> = ids
        .filter(|id| *id != std::process::id())
        .filter_map(|id| {
            let folder = PathBuf::from(format!("/proc/{id}"));
            is_wanted(&folder).then(|| Process { id, name: name_of(&folder) })
        })
        .collect();
    found.sort_by_key(|process| process.id);
    found
}

fn name_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned()
}

fn carries(folder: &Path, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = fs::read(folder.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

fn is_worker_of(folder: &Path, target: &Path) -> bool {
    PROCESSES.contains(&name_of(folder).as_str())
        && (fs::read_link(folder.join("exe")).is_ok_and(|executable| executable.starts_with(target))
            || maps_file_of(&fs::read_to_string(folder.join("maps")).unwrap_or_default(), target))
}

/// Whether a process has a file from below the folder in its memory. A Python worker's executable is the system's, and
/// only the extension is ours.
fn maps_file_of(maps: &str, folder: &Path) -> bool {
    maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).any(|path| Path::new(path).starts_with(folder))
}

fn files_of_ours(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<String> = names.filter(|name| name.starts_with(FILE_PREFIX)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_process_that_carries_the_mark_is_found_and_ended() {
        let mark = format!("planted-{}", std::process::id());
        let mut child = Command::new("cat")
            .env(MARK, &mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat is on every machine that runs these tests");
        // A child that has been started may not have its environment in `/proc` yet; one that answers has.
        let (input, output) = (child.stdin.as_mut(), child.stdout.as_mut());
        input.expect("a pipe was asked for").write_all(b"?").expect("the child reads until it is ended");
        output.expect("a pipe was asked for").read_exact(&mut [0]).expect("the child writes what it reads");
        let found = processes(|entry| carries(entry, &mark));
        assert!(found.iter().any(|process| process.id == child.id()));
        end_marked(&mark);
        assert!(!child.wait().expect("the child is ours").success());
        assert!(processes(|entry| carries(entry, &mark)).is_empty());
    }

    #[test]
    fn a_process_is_known_by_the_extension_that_it_has_loaded() {
        let maps = "7f00-7f01 r-xp 00000000 fe:00 12 /usr/lib/libc.so.6\n\
            7f02-7f03 r-xp 00000000 fe:00 13                 /house/target/venv/lib/bireme/_native.abi3.so\n7f04-7f05 rw-p 0 0\n";
        assert!(maps_file_of(maps, Path::new("/house/target")));
        assert!(!maps_file_of(maps, Path::new("/house/tar")));
    }

    #[test]
    fn a_file_of_ours_in_the_temporary_folder_is_found() {
        let target = std::env::temp_dir().join(format!("xtask-remains-{}", std::process::id()));
        let folder = temporary_folder(&target).expect("the temporary folder can be written");
        assert!(look_once("no-such-mark", &target, &shared_memory_files()).is_empty());
        fs::write(folder.join("bireme-spill-1"), "").expect("the folder was made above");
        fs::write(folder.join("rustdoc-1"), "").expect("the folder was made above");
        let found = look_once("no-such-mark", &target, &shared_memory_files());
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("bireme-spill-1"));
        clear_temporary_folder(&target);
        assert!(look_once("no-such-mark", &target, &shared_memory_files()).is_empty());
        fs::remove_dir_all(&target).expect("the folder was made above");
    }
}
