//! Standard output, whose reader may leave before the end.

use std::fmt::Arguments;
use std::io::{ErrorKind, Result, Write, stdout};
use std::process::exit;

/// Writes text.
pub(crate) fn print(text: Arguments<'_>) {
    end_when_unread(stdout().lock().write_fmt(text));
}

/// Writes text and a newline.
pub(crate) fn print_line(text: Arguments<'_>) {
    let mut stdout = stdout().lock();
    end_when_unread(stdout.write_fmt(text).and_then(|()| stdout.write_all(b"\n")));
}

/// Ends the command when nobody reads what it prints: quietly, since the reader had enough.
fn end_when_unread(written: Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(0),
        Err(error) => {
            eprintln!("bireme: writing to standard output: {error}");
            exit(1);
        }
    }
}
