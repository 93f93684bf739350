//! Folders that are the user's alone, and processes that are who they were.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use bireme_core::id::NodeId;

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bireme-local-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn refusal(path: &Path) -> String {
    let said = StateDirectory::open(path).err().unwrap().to_string();
    assert!(said.contains(&path.display().to_string()) && said.contains("BIREME_STATE_DIRECTORY"), "{said}");
    said
}

#[test]
fn a_state_directory_is_made_for_its_user_alone() {
    let folder = Folder::new("made");
    let path = folder.0.join("state");
    let state = StateDirectory::open(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    StateDirectory::open(&path).unwrap();
    let (one, two) = (state.cluster("c-1").unwrap(), state.cluster("c2").unwrap());
    assert_ne!(one, two, "clusters do not meet");
    assert_eq!(mode(&one), 0o700);
    assert_eq!(mode(&state.make_node().unwrap()), 0o700);
    for id in ["", "..", "a/b", "a b"] {
        assert!(state.cluster(id).is_err(), "{id:?}");
    }
}

#[test]
fn a_directory_that_is_open_or_a_link_or_no_directory_is_refused() {
    let folder = Folder::new("refused");
    let open = folder.0.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(refusal(&open).contains("chmod 700"));
    let good = folder.0.join("good");
    StateDirectory::open(&good).unwrap();
    let link = folder.0.join("link");
    symlink(&good, &link).unwrap();
    assert!(refusal(&link).contains("is no folder"));
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("is no folder"));
    assert!(refusal(&folder.0.join("missing/state")).contains("cannot be made"));
}

#[test]
fn a_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        // Only root can make one; the folder of root is another user's too.
        assert!(refusal(Path::new("/root")).contains("belongs to user 0"));
        assert_ne!(std::env::var("BIREME_SKIPS").as_deref(), Ok("fail"), "not tested: only root can make one");
        return;
    }
    let folder = Folder::new("other");
    let path = folder.0.join("state");
    StateDirectory::open(&path).unwrap();
    chown(&path, Some(54_321), None).unwrap();
    assert!(refusal(&path).contains("belongs to user 54321"));
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_refused_in_words() {
    let folder = Folder::new("long");
    let state = StateDirectory::open(&folder.0.join("x".repeat(SOCKET_PATH_BYTES_MAX))).unwrap();
    assert!(state.make_node().unwrap_err().to_string().contains("too long"));
}

fn node_file(folder: &Path, process: ProcessMark) -> NodeFile {
    NodeFile {
        node: NodeId(3),
        cluster: "c1".to_owned(),
        address: "127.0.0.1:7".to_owned(),
        head: "127.0.0.1:6".to_owned(),
        socket: folder.join(NodeFile::SOCKET),
        log: folder.join(NodeFile::LOG),
        version: "0".to_owned(),
        process,
    }
}

#[test]
fn a_node_file_is_read_as_it_was_written_and_a_broken_one_is_an_error() {
    let folder = Folder::new("file");
    let file = node_file(&folder.0, ProcessMark::of_this_process().unwrap());
    file.write(&folder.0).unwrap();
    assert_eq!(NodeFile::read(&folder.0).unwrap(), file);
    assert_eq!(file.folder(), folder.0);
    assert_eq!(fs::metadata(folder.0.join(NodeFile::NAME)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing unfinished is left");
    fs::write(folder.0.join(NodeFile::NAME), "node = 3\n").unwrap();
    assert!(NodeFile::read(&folder.0).is_err());
    fs::write(folder.0.join(NodeFile::NAME), vec![b'#'; 1 << 20]).unwrap();
    assert!(NodeFile::read(&folder.0).unwrap_err().to_string().contains("too long"));
}

#[test]
fn a_process_that_got_a_dead_nodes_id_is_not_taken_for_it_and_not_ended() {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let here = ProcessMark::of_this_process().unwrap();
    let start = |id| format!("/proc/{id}/stat");
    assert!(Path::new(&start(child.id())).exists());
    for stranger in [
        ProcessMark { id: child.id(), start: here.start.saturating_sub(1_000_000), boot: here.boot.clone() },
        ProcessMark { id: child.id(), boot: "another".to_owned(), ..here.clone() },
        ProcessMark { id: u32::MAX, ..here.clone() },
        ProcessMark { id: 0, ..here },
    ] {
        assert!(!stranger.is_running());
        assert_eq!(stranger.end(Duration::from_secs(1)).unwrap(), Ended::Before);
    }
    assert_eq!(child.try_wait().unwrap(), None, "it was left alone");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_process_ends_when_asked_and_is_killed_when_it_does_not() {
    // A shell that says when it has set its traps.
    let start = |script: &str| {
        let child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let id = child.id();
        (child, id)
    };
    for (trap, ended) in [("trap 'exit 0' TERM", Ended::Asked), ("trap '' TERM", Ended::Killed)] {
        let (mut child, id) = start(&format!("{trap}; echo; while :; do sleep 0.01; done"));
        let mut said = [0];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
        let mark = ProcessMark { id, start, ..ProcessMark::of_this_process().unwrap() };
        assert!(mark.is_running());
        let grace = if ended == Ended::Asked { Duration::from_secs(20) } else { Duration::from_millis(50) };
        assert_eq!(mark.end(grace).unwrap(), ended, "{trap}");
        assert!(!mark.is_running(), "one that its parent has not looked at yet is gone all the same");
        child.wait().unwrap();
        assert_eq!(mark.end(grace).unwrap(), Ended::Before);
    }
}

#[test]
fn what_a_dead_node_left_is_swept_and_its_log_is_kept() {
    let folder = Folder::new("sweep");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    let state = StateDirectory::open(&folder.0).unwrap();
    let alive = state.make_node().unwrap();
    let here = ProcessMark::of_this_process().unwrap();
    let dead = folder.0.join("nodes").join(format!("{}-{}", here.id, here.start + 1));
    let stray = folder.0.join("nodes").join("stray");
    for path in [&dead, &stray] {
        fs::create_dir(path).unwrap();
    }
    fs::write(dead.join(NodeFile::LOG), "last words").unwrap();
    node_file(&dead, ProcessMark { start: here.start + 1, ..here.clone() }).write(&dead).unwrap();
    node_file(&alive, here.clone()).write(&alive).unwrap();
    assert_eq!(state.running().len(), 1);
    state.sweep();
    assert!(alive.exists() && !dead.exists() && !stray.exists());
    assert_eq!(fs::read_to_string(state.crashed_log()).unwrap(), "last words");
    assert_eq!(state.node_of(here.id), Some(alive));
    assert_eq!(state.node_of(0), None);
}

#[test]
fn keys_are_in_the_users_home_unless_a_folder_was_chosen_for_everything() {
    let home = std::env::temp_dir().join(format!("bireme-keys-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let here = Surroundings { home: Some(home.clone()), ..Surroundings::of_this_process() };
    let mut here = Surroundings { environment: Default::default(), ..here };
    let usual = PathBuf::from(here.state_directory());
    assert!(usual.starts_with("/tmp"));
    assert_eq!(keys_beside(&usual, &here), Some(home.join(".local/state/bireme")));
    assert_eq!(keys_beside(Path::new("/chosen"), &here), Some(PathBuf::from("/chosen")));
    here.home = None;
    assert_eq!(keys_beside(&usual, &here), None, "never where everything goes with a restart");
    std::fs::remove_dir(home).unwrap();
}
