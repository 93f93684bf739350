//! An actor's `Drop` runs: after its last handle, after `kill`, and at the end of the program.
// expect: dropped after the last handle
// expect: dropped after kill

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Guard(PathBuf);

#[bireme::actor]
impl Guard {
    pub fn new(file: PathBuf) -> Self {
        Guard(file)
    }

    pub fn touch(&self) -> bool {
        true
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A failure shows as a file that is missing.
        let _ = std::fs::write(&self.0, "dropped");
    }
}

fn appears(file: &Path) -> bool {
    let started = Instant::now();
    while !file.exists() {
        if started.elapsed() > Duration::from_secs(60) {
            return false;
        }
        std::thread::yield_now();
    }
    // Temporary files are the program's own to remove.
    std::fs::remove_file(file).is_ok()
}

fn main() -> bireme::Result<()> {
    let folder = std::env::temp_dir();
    let files: Vec<PathBuf> = ["handle", "kill", "end"].iter().map(|name| folder.join(name)).collect();
    {
        let _context = bireme_programs::start()?;
        let first = Guard::remote(files[0].clone());
        first.touch().get()?;
        drop(first);
        assert!(appears(&files[0]), "the drop after the last handle");
        println!("dropped after the last handle");
        let second = Guard::remote(files[1].clone());
        second.touch().get()?;
        second.kill()?;
        assert!(appears(&files[1]), "the drop after kill");
        println!("dropped after kill");
        let third = Guard::remote(files[2].clone());
        third.touch().get()?;
        // The context ends before the handle would.
        std::mem::forget(third);
    }
    assert!(appears(&files[2]), "the drop at the end of the program");
    Ok(())
}
