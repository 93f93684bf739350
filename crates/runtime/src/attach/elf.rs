//! What an executable needs of a machine, from its own headers: the processor, and the loader of its C library.
//!
//! Enough to say in words why a program cannot run here before anything is started. Only 64-bit little-endian files are
//! read, which is what the runtime runs on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: [u8; 4] = *b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_INTERP: u32 = 3;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// Program headers that are looked at; executables have a dozen.
const PROGRAM_HEADERS_MAX: u16 = 256;
/// Longest path of a loader.
const LOADER_BYTES_MAX: u64 = 4096;

/// What an executable needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) machine: u16,
    /// The loader of its C library; none when it was linked with all that it needs.
    pub(super) loader: Option<String>,
}

impl Needs {
    /// Reads the headers of an executable.
    pub(super) fn of(path: &Path) -> Result<Self, String> {
        let unreadable = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
        let file = File::open(path).map_err(unreadable)?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(unreadable)?;
        let ours = header[..4] == MAGIC && header[4] == CLASS_64 && header[5] == LITTLE_ENDIAN;
        if !ours {
            return Err(format!("{} is no executable of a 64-bit Linux", path.display()));
        }
        let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let table = u64::from_le_bytes(header[32..40].try_into().unwrap_or_default());
        let (size, count) = (number(54), number(56).min(PROGRAM_HEADERS_MAX));
        let mut loader = None;
        for index in 0..u64::from(count) {
            let mut entry = [0; PROGRAM_HEADER_BYTES];
            let at = table.saturating_add(index * u64::from(size));
            file.read_exact_at(&mut entry, at).map_err(unreadable)?;
            if u32::from_le_bytes(entry[..4].try_into().unwrap_or_default()) == PT_INTERP {
                let offset = u64::from_le_bytes(entry[8..16].try_into().unwrap_or_default());
                let bytes = u64::from_le_bytes(entry[32..40].try_into().unwrap_or_default()).min(LOADER_BYTES_MAX);
                let mut text = vec![0; bytes as usize];
                file.read_exact_at(&mut text, offset).map_err(unreadable)?;
                loader = Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned());
            }
        }
        Ok(Self { machine: number(18), loader })
    }

    /// Why this machine cannot run it, when it cannot.
    pub(super) fn lacking_here(&self) -> Result<(), String> {
        let here = Self::of(Path::new("/proc/self/exe"))?;
        if self.machine != here.machine {
            return Err(format!(
                "the program was compiled for {}, and this machine is {}; compile it for this one",
                machine_name(self.machine),
                machine_name(here.machine)
            ));
        }
        match &self.loader {
            Some(loader) if !Path::new(loader).exists() => Err(format!(
                "the program needs the C library of {loader}, which this machine does not have; compile it for {}, or \
                 link it statically",
                here.loader.as_deref().unwrap_or("the C library of this machine")
            )),
            _ => Ok(()),
        }
    }
}

/// The usual name of a processor's number.
pub(super) fn machine_name(machine: u16) -> String {
    match machine {
        62 => "x86_64".to_owned(),
        183 => "aarch64".to_owned(),
        243 => "riscv64".to_owned(),
        other => format!("processor {other}"),
    }
}
